"""Nested values, such as parameters by section, as one level."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


def leaves(values: Mapping[str, Any], within: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """The path of keys to everything that is no mapping, or an empty one, and its value, in order."""
    for key, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from leaves(value, (*within, key))
        else:
            yield (*within, key), value


def dotted(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values that are no mapping, by the path of keys to them, `a.b.c`."""
    return {".".join(keys): value for keys, value in leaves(values) if not isinstance(value, Mapping)}
