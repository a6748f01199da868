"""What the parameters of a stage are known by in its cache key: contents and versions instead of places."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from turnwise.outside import Outside


def known_by_content(parameters: BaseModel) -> dict[str, Any]:
    """The parameters as plain values, and of what comes from outside its content alone."""
    known = parameters.model_dump(mode="json")
    for name, value in parameters:
        if isinstance(value, Outside):
            known[name] = value.content
    return known
