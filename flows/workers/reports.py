"""What a worker says while it makes a run: one report a line, as JSON.

began        the warm start is evaluated, nothing is trained yet
started      a stage begins to compute
progressed   of the stage that is being computed, at most twice a second
finished     a stage has returned
iterated     an iteration has ended
made         the run has been tested: after its last iteration, or where a guard or an alarm ended it
ended        a fault has ended it
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from tasks.observing import Observer, StageCall, observing
from turnwise import progress
from turnwise.data.outcomes import EarlyEnd
from turnwise.experiment import Experiment
from turnwise.runs.state import Iteration, Models
from turnwise.store import Reference

SECONDS_BETWEEN_PROGRESS = 0.5


class _Report(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Began(_Report):
    """The evaluations before the first iteration: see `turnwise.runs.state.Run`."""

    kind: Literal["began"] = "began"
    models: Models
    start: Reference
    start_at_horizon: Reference | None
    start_warning: str


class Started(_Report):
    """A stage begins to compute."""

    kind: Literal["started"] = "started"
    stage: str
    label: str


class Progressed(_Report):
    """See `turnwise.progress.Progress`."""

    kind: Literal["progressed"] = "progressed"
    what: str
    done: int
    total: int
    figures: Mapping[str, float]


class Finished(_Report):
    """A stage has returned."""

    kind: Literal["finished"] = "finished"
    call: StageCall


class Iterated(_Report):
    """The last iterations, of which the one before the last may have been returned to a healthy policy since."""

    kind: Literal["iterated"] = "iterated"
    latest: list[Iteration]


class Made(_Report):
    """The whole run, except what `Began` has said."""

    kind: Literal["made"] = "made"
    experiment: Experiment
    models: Models
    iterations: list[Iteration]
    ended: EarlyEnd | None
    test: Reference | None
    test_at_horizon: Reference | None


class Ended(_Report):
    """The fault that has ended the run."""

    kind: Literal["ended"] = "ended"
    reason: str
    fault: str
    """The guard that found it: `mismatch` or `not_finite`."""


Report = Began | Started | Progressed | Finished | Iterated | Made | Ended
_ANY: TypeAdapter[Report] = TypeAdapter(Annotated[Report, Field(discriminator="kind")])


def read_report(line: str) -> Report:
    """The report of a line. Raises pydantic's ValidationError for anything else."""
    return _ANY.validate_json(line)


class Reporter(Observer):
    """Reports the stages of a block, and their progress."""

    def __init__(self, say: Callable[[str], None]) -> None:
        """`say` sends a line; several threads may call it."""
        self._say = say
        self._last = 0.0

    def send(self, report: Report) -> None:
        """Send a report."""
        self._say(report.model_dump_json())

    def started(self, stage: str, label: str) -> None:
        """Say that a stage begins."""
        self.send(Started(stage=stage, label=label))

    def finished(self, call: StageCall) -> None:
        """Say that a stage has returned."""
        self.send(Finished(call=call))

    def progressed(self, told: progress.Progress) -> None:
        """Say how far the stage is, unless that was said just now."""
        if time.monotonic() - self._last >= SECONDS_BETWEEN_PROGRESS:
            self._last = time.monotonic()
            self.send(Progressed(what=told.what, done=told.done, total=told.total, figures=dict(told.figures)))


@contextmanager
def reporting_stages(say: Callable[[str], None]) -> Iterator[Reporter]:
    """Report every stage that the block calls, with its progress."""
    reporter = Reporter(say)
    with observing(reporter), progress.listening(reporter.progressed):
        yield reporter
