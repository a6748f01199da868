"""What stands for a stage's parameters in its cache key: contents and versions instead of paths."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from turnwise.config.schema import WorldSection
from turnwise.store.outside import Outside
from turnwise.store.world_identity import world_ingredients


def known_by_content(parameters: BaseModel) -> dict[str, Any]:
    """The parameters as plain values for a cache key.

    A file or model from outside is replaced by the digest of its content, a world section by what identifies the world
    (`turnwise.store.world_identity`).

    Raises ConfigurationError where a world or its data is missing, and whatever an unreachable world server raises.
    """
    known = parameters.model_dump(mode="json")
    for name, value in parameters:
        if isinstance(value, Outside):
            known[name] = value.content
        elif isinstance(value, WorldSection):
            known[name] = world_ingredients(value)
    return known
