"""The inputs in a lineage record: references as text, None, and lists and dictionaries of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from turnwise.store.manifest import Reference


def references_in(value: Any, name: str = "") -> Iterator[tuple[str, Reference]]:
    """The references within recorded inputs, by name; those in lists and dictionaries by name and place."""
    if isinstance(value, str):
        yield name, _reference(value)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from references_in(item, f"{name} {key}".strip())
    elif isinstance(value, list):
        for place, item in enumerate(value, start=1):
            yield from references_in(item, f"{name} {place}".strip())


def with_references(value: Any) -> Any:
    """Recorded inputs as a stage is called with them: in the same shape, with references in place of their texts."""
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
