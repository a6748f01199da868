"""The functions that an agent's format declares to a chat template, and how a reply calls them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

DESCRIPTION = "An action in the world."
"""Of every function; what it does, the world's instruction says."""


@dataclass(frozen=True)
class DeclaredFunctions:
    """The functions of a world, all of which take one text, and how a reply calls them."""

    names: tuple[str, ...]
    argument: str
    """The name of the argument."""
    example_value: str
    example: str
    """A call of the first function with `example_value`, as the agent's format writes it."""

    @property
    def signatures(self) -> list[dict[str, Any]]:
        """The functions as chat templates take them: JSON schemas, each with a description.

        vLLM's server writes `null` into the prompt where a function has none, which would be another prompt.
        """
        return [signature(name, self.argument, DESCRIPTION) for name in self.names]


def signature(name: str, argument: str, description: str | None = None) -> dict[str, Any]:
    """The JSON schema of a function with one argument, a text, with its keys in the order of servers."""
    described = {} if description is None else {"description": description}
    parameters = {"type": "object", "properties": {argument: {"type": "string"}}, "required": [argument]}
    return {"type": "function", "function": {"name": name, **described, "parameters": parameters}}
