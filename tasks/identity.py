"""What the parameters of a stage are known by in its cache key: contents and versions instead of places."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from turnwise.config.schema import WorldSection
from turnwise.store.outside import Outside
from turnwise.store.world_identity import world_ingredients


def known_by_content(parameters: BaseModel) -> dict[str, Any]:
    """The parameters as plain values; of what comes from outside the content alone, and of a world what it reads.

    Raises ConfigurationError where that is not there, and what a world's server raises that cannot be asked.
    """
    known = parameters.model_dump(mode="json")
    for name, value in parameters:
        if isinstance(value, Outside):
            known[name] = value.content
        elif isinstance(value, WorldSection):
            known[name] = world_ingredients(value)
    return known
