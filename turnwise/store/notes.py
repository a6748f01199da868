"""What stands beside an artifact and in no digest: its clock, and its lineage. Damage to a note stops nothing."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import FiniteFloat, TypeAdapter, ValidationError

from turnwise.store.atomic_write import write_durably

logger = logging.getLogger(__name__)

Clock = TypeAdapter(dict[str, FiniteFloat])
"""Numbers by name."""
Lineage = TypeAdapter(dict[str, Any])
"""One way in which an artifact was made."""

_reported: set[Path] = set()


def read_note(path: Path, of_type: TypeAdapter[dict[str, Any]]) -> dict[str, Any] | None:
    """What the note says; None where there is none, and, with one warning per process, where it is damaged."""
    try:
        return of_type.validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except ValidationError as error:
        if path not in _reported:
            _reported.add(path)
            logger.warning("%s cannot be read (%s); it is left out.", path, _first(error))
        return None


def damage(path: Path, of_type: TypeAdapter[dict[str, Any]]) -> str | None:
    """Why a note cannot be read; None for one that can."""
    try:
        of_type.validate_json(path.read_bytes())
    except ValidationError as error:
        return _first(error)
    return None


def write_note(path: Path, value: Mapping[str, Any], temporary: Path) -> None:
    """Write a note so that a reader finds the old one or the new one. `temporary` is a free name on the same disk."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_durably(temporary, json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False))
    os.replace(temporary, path)


def _first(error: ValidationError) -> str:
    return str(error.errors(include_url=False, include_input=False)[0]["msg"])
