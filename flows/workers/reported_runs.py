"""A run that a worker makes: its order, the worker's reports, and the run as the main process follows it.

Orders and reports are a line of JSON each; nothing is pickled. The reports:

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

from flows.runtime.flow_runs import run_flow
from flows.runtime.sampler import Sampler
from flows.train import train
from turnwise import progress
from turnwise.data.outcomes import EarlyEnd
from turnwise.errors import TrainingEnded, TurnwiseError
from turnwise.experiment import Experiment
from turnwise.records.record import AblationRecord
from turnwise.store import Reference
from turnwise.training_runs.display import WorkerView
from turnwise.training_runs.observing import Observer, StageCall, observing
from turnwise.training_runs.state import Iteration, Models, Prepared, Run

SECONDS_BETWEEN_PROGRESS = 0.5


class _Report(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Began(_Report):
    """The evaluations before the first iteration: see `turnwise.training_runs.state.Run`."""

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

    def progressed(self, report: progress.Progress) -> None:
        """Say how far the stage is, unless that was said just now."""
        if time.monotonic() - self._last >= SECONDS_BETWEEN_PROGRESS:
            self._last = time.monotonic()
            self.send(Progressed(what=report.what, done=report.done, total=report.total, figures=dict(report.figures)))


@contextmanager
def reporting_stages(say: Callable[[str], None]) -> Iterator[Reporter]:
    """Report every stage that the block calls, with its progress."""
    reporter = Reporter(say)
    with observing(reporter), progress.listening(reporter.progressed):
        yield reporter


class RunOrder(BaseModel):
    """One variant with one seed, which any process of this home can train and test."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    experiment: Experiment
    """The whole ablation's."""
    prepared: dict[str, Reference]
    variant: str
    seed: int
    tested: bool = True
    """Whether its final policy is played on the test task set."""
    samples_ahead: bool = False
    """Whether the worker has rollouts sampled ahead in a further process, where `rollout.lag` allows it."""

    @property
    def name(self) -> str:
        """The name of the run wherever it is shown."""
        return f"{self.variant} seed {self.seed}"


def read_order(text: str, last: RunOrder | None) -> RunOrder:
    """In a worker: an order from JSON. Where it is of the last one's ablation, the world is not made again."""
    order = RunOrder.model_validate_json(text)
    same = last is not None and last.experiment == order.experiment
    return order.model_copy(update={"experiment": last.experiment}) if last is not None and same else order


def make_ordered(order: RunOrder, reporter: Reporter, sampler: Sampler | None = None) -> None:
    """In a worker: make the run and report it. Stages whose results are stored already are found there.

    It is a flow run with the tags of the ablation; Prefect's pages do not list it as a part of the ablation's flow run,
    which is in another process.
    """

    def began(run: Run) -> None:
        reporter.send(
            Began(
                models=run.models,
                start=run.start,
                start_at_horizon=run.start_at_horizon,
                start_warning=run.start_warning,
            )
        )

    def iterated(run: Run, iteration: Iteration) -> None:
        reporter.send(Iterated(latest=run.iterations[-2:]))

    own = order.experiment.variant(order.variant)
    try:
        run = run_flow(
            train,
            own,
            Prepared(**order.prepared),
            order.variant,
            order.seed,
            iterated,
            sampler,
            on_start=began,
            tested=order.tested,
        )
    except TrainingEnded as error:
        reporter.send(Ended(reason=str(error), fault=error.fault))
        return
    reporter.send(
        Made(
            experiment=run.experiment,
            models=run.models,
            iterations=run.iterations,
            ended=run.ended,
            test=run.test,
            test_at_horizon=run.test_at_horizon,
        )
    )


class FollowedRun:
    """Rebuilds a run from its worker's reports. A worker that begins again, after a loss, begins it again here."""

    def __init__(self, order: RunOrder, record: AblationRecord) -> None:
        self._order, self._record = order, record
        self._own = order.experiment.variant(order.variant)
        self._run: Run | None = None
        self.outcome: Run | TrainingEnded | None = None
        """The whole run, or why it is left out; None before, and where its worker was lost for good."""

    @property
    def order(self) -> RunOrder:
        """What the worker was asked for."""
        return self._order

    def open(self) -> None:
        """Open its record: a worker begins."""
        self._record.open(self._order.name, self._order.variant, self._order.seed, self._own)

    def failed(self, error: TurnwiseError) -> None:
        """Record that its worker has ended with an error that was raised on purpose."""
        self._record.fail(self._order.name, repr(error))

    def heard(self, report: Report, view: WorkerView) -> None:
        """Take a report of its worker."""
        match report:
            case Started():
                view.started(report.stage, report.label)
            case Progressed():
                view.progressed(progress.Progress(report.what, report.done, report.total, report.figures))
            case Finished():
                view.finished(report.call)
            case Began():
                self._began(report)
            case Iterated():
                self._iterated(report)
            case Made():
                self._made(report)
            case Ended():
                self.outcome = TrainingEnded(report.reason, "TW-training-ended", report.fault)
                self._record.leave_out(self._order.name, self.outcome)

    def _began(self, report: Began) -> None:
        order = self._order
        run = Run(order.variant, order.seed, self._own, Prepared(**order.prepared), report.models, report.start)
        run.start_at_horizon, run.start_warning = report.start_at_horizon, report.start_warning
        self._run = run
        self._record.start(run)

    def _iterated(self, report: Iterated) -> None:
        run = self._begun
        del run.iterations[report.latest[0].number - 1 :]
        run.iterations += report.latest
        self._record.iteration(run, run.iterations[-1])

    def _made(self, report: Made) -> None:
        run = self._begun
        run.experiment, run.models, run.iterations = report.experiment, report.models, report.iterations
        run.ended, run.test, run.test_at_horizon = report.ended, report.test, report.test_at_horizon
        self._record.finish(run)
        self.outcome = run

    @property
    def _begun(self) -> Run:
        assert self._run is not None, "a worker says first that it has begun"
        return self._run
