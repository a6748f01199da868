"""Notes: JSON files next to an artifact that its digest does not cover, namely its measurements and its provenance.

A damaged note is skipped with a warning and never stops a run. The inputs in a provenance record are references,
written as `kind/digest`, None, and lists and dictionaries of them.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import FiniteFloat, TypeAdapter, ValidationError

from turnwise.store.atomic_write import write_durably
from turnwise.store.manifest import Reference

logger = logging.getLogger(__name__)

Clock = TypeAdapter(dict[str, FiniteFloat])
"""Measurements by name (seconds, tokens/s, bytes); all finite."""
Lineage = TypeAdapter(dict[str, Any])
"""Provenance: one way in which an artifact was produced."""

_reported: set[Path] = set()
"""Damaged notes that this process has warned of."""


def read_note(path: Path, adapter: TypeAdapter[dict[str, Any]]) -> dict[str, Any] | None:
    """The content of a note, or None where it does not exist or is damaged; damage is warned of once per process."""
    try:
        return adapter.validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except ValidationError as error:
        if path not in _reported:
            _reported.add(path)
            logger.warning("%s cannot be read (%s); it is left out.", path, _first(error))
        return None


def damage(path: Path, adapter: TypeAdapter[dict[str, Any]]) -> str | None:
    """Why a note cannot be read, or None for one that can. Raises FileNotFoundError where there is no note."""
    try:
        adapter.validate_json(path.read_bytes())
    except ValidationError as error:
        return _first(error)
    return None


def write_note(path: Path, value: Mapping[str, Any], temporary: Path) -> None:
    """Write a note atomically: a reader finds the old one or the new one, never a part.

    `temporary` is an unused path on the same file system.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    write_durably(temporary, json.dumps(value, sort_keys=True, ensure_ascii=False, allow_nan=False))
    os.replace(temporary, path)


def _first(error: ValidationError) -> str:
    return str(error.errors(include_url=False, include_input=False)[0]["msg"])


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
