"""The inputs of a provenance record: references written as `kind/digest`, None, and lists and dictionaries of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from turnwise.store.manifest import Reference


def references_in(value: Any, name: str = "") -> Iterator[tuple[str, Reference]]:
    """Yield (name, reference) for every reference in recorded inputs, however deeply nested.

    A dictionary's key, or a list item's position counted from 1, is appended to the name: `rollouts 2`.
    """
    if isinstance(value, str):
        yield name, _reference(value)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from references_in(item, f"{name} {key}".strip())
    elif isinstance(value, list):
        for place, item in enumerate(value, start=1):
            yield from references_in(item, f"{name} {place}".strip())


def with_references(value: Any) -> Any:
    """Recorded inputs in the form that a stage takes: the same shape, with each text parsed into a `Reference`."""
    if isinstance(value, str):
        return _reference(value)
    if isinstance(value, dict):
        return {key: with_references(item) for key, item in value.items()}
    if isinstance(value, list):
        return [with_references(item) for item in value]
    return value


def _reference(text: str) -> Reference:
    kind, _, digest = text.partition("/")
    return Reference(kind=kind, digest=digest)
