"""The functions that an agent's format declares to a chat template, and how a reply calls them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


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
        """The functions as chat templates take them: JSON schemas."""
        return [signature(name, self.argument) for name in self.names]


def signature(name: str, argument: str) -> dict[str, Any]:
    """The JSON schema of a function with one argument, a text."""
    parameters = {"type": "object", "properties": {argument: {"type": "string"}}, "required": [argument]}
    return {"type": "function", "function": {"name": name, "parameters": parameters}}
