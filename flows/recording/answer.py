"""What `turnwise lineage` found: a number, and what it is computed from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from turnwise.store import Reference

if TYPE_CHECKING:
    from turnwise.tracking.finding import RecordedRun


@dataclass(frozen=True)
class Source:
    """One number of one run, or of a row that is no run, and the artifact that it is read from."""

    value: float | None
    reference: Reference
    run: RecordedRun | None
    row: str = ""
    """The player's name, or `warm start`; empty for a run and for an artifact that was asked for itself."""


@dataclass(frozen=True)
class NumberAnswer:
    """A number as the report tells it, and all that it is computed from."""

    value: float | None
    manner: str
    """How it is computed from its sources; empty where it is the value of the only one."""
    sources: list[Source]
