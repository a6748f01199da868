"""A run of an ablation, as any process makes it, and what a worker reports to the process that records and shows it.

A worker makes a run as this process would. In place of the ablation's record it has a `RunReporter`, which sends each
call here, where it is made; so are the calls that the display shows.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from flows.runtime.flow_runs import run_flow
from flows.runtime.sampler import Sampler
from flows.train import train
from turnwise import progress
from turnwise.data.outcomes import NamedRun
from turnwise.errors import TrainingEnded
from turnwise.experiment import Experiment
from turnwise.training_runs.display import WorkerView
from turnwise.training_runs.observing import Observer, observing
from turnwise.training_runs.state import Iteration, Prepared, Run

if TYPE_CHECKING:
    from turnwise.records.record import AblationRecord

SECONDS_BETWEEN_PROGRESS = 0.5


@dataclass(frozen=True)
class RunOrder(NamedRun):
    """One variant with one seed, which any process of this home can train and test."""

    experiment: Experiment
    """The whole ablation's."""
    prepared: Prepared
    variant: str
    seed: int
    tested: bool = True
    """Whether its final policy is played on the test task set."""


RunRecord: TypeAlias = "AblationRecord | RunReporter"
"""Where runs are recorded: in MLflow, or by the process that a worker reports to."""


def run_recorded(
    order: RunOrder,
    record: RunRecord,
    sampler: Sampler | None = None,
    between: Callable[[], None] = lambda: None,
) -> Run:
    """Run one variant with one seed, recorded as a child run of the ablation in MLflow; failures are recorded too.

    It is a flow run with the tags of the ablation; Prefect's pages do not list a worker's as a part of the ablation's
    flow run, which is in another process. `between` is called before the first iteration and after each of them.

    Raises:
        TrainingEnded: a fault ends the run, so that nothing can be concluded from it.
    """
    own, name = order.experiment.variant(order.variant), order.name
    record.open(name, order.variant, order.seed, own)

    def start(run: Run) -> None:
        record.start(run)
        between()

    def iterated(run: Run, iteration: Iteration) -> None:
        record.iteration(run, iteration)
        between()

    try:
        run = run_flow(train, own, order.prepared, order.variant, order.seed, iterated, sampler, start, order.tested)
    except TrainingEnded as error:
        record.leave_out(name, error)
        raise
    except Exception as error:
        record.fail(name, repr(error))
        raise
    record.finish(run)
    return run


@dataclass(frozen=True)
class Report:
    """A call in a worker of a method of `WorkerView` or of `RunRecord`, which this process makes."""

    method: str
    arguments: tuple[Any, ...]


def _reported(method: str) -> Callable[..., None]:
    """The method of this name of a `RunReporter`: it sends its call."""

    def report(self: RunReporter, *arguments: Any) -> None:
        self.send(Report(method, arguments))

    return report


class RunReporter(Observer):
    """In a worker: sends what this process is to show of a run and, as a `RunRecord`, what it is to record."""

    def __init__(self, send: Callable[[Report], None]) -> None:
        """`send` may be called by several threads."""
        self.send = send
        self._last = 0.0

    def progressed(self, report: progress.Progress) -> None:
        """Report how far the stage is, at most twice a second."""
        if time.monotonic() - self._last >= SECONDS_BETWEEN_PROGRESS:
            self._last = time.monotonic()
            self.send(Report("progressed", (report,)))

    started, finished = _reported("started"), _reported("finished")
    open, start, iteration = _reported("open"), _reported("start"), _reported("iteration")
    finish, leave_out, fail = _reported("finish"), _reported("leave_out"), _reported("fail")


@contextmanager
def run_reporter(send: Callable[[Report], None]) -> Iterator[RunReporter]:
    """Report every stage that the block calls, with its progress, and what is recorded by the reporter itself."""
    reporter = RunReporter(send)
    with observing(reporter), progress.listening(reporter.progressed):
        yield reporter


class FollowedRun:
    """A run that a worker makes. A worker that begins again, after a loss, begins it again here."""

    def __init__(self, order: RunOrder, record: RunRecord) -> None:
        self.order, self._record = order, record
        self.outcome: Run | TrainingEnded | None = None
        """The whole run, or why it is left out; None before, and where its worker was lost for good."""

    def heard(self, report: Report, view: WorkerView) -> None:
        """Show or record what its worker reports."""
        is_display_call = report.method in ("started", "progressed", "finished")
        getattr(view if is_display_call else self._record, report.method)(*report.arguments)
        if report.method in ("finish", "leave_out"):
            self.outcome = report.arguments[-1]
