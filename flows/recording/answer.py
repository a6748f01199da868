"""The answer of `turnwise lineage`: a number and the artifacts that it is computed from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from turnwise.store import Reference

if TYPE_CHECKING:
    from turnwise.tracking.finding import RecordedRun


@dataclass(frozen=True)
class Source:
    """One value, of a run or of another row of the table, and the artifact that it is read from."""

    value: float | None
    reference: Reference
    run: RecordedRun | None
    row: str = ""
    """Name of a baseline policy, or `warm start`; empty for a run and for an artifact that was asked for directly."""


@dataclass(frozen=True)
class NumberAnswer:
    """A number as in the report, and everything that it is computed from."""

    value: float | None
    manner: str
    """How the value is computed from its sources; empty where it is the value of a single source."""
    sources: list[Source]
