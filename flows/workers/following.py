"""A run that a worker makes, as this process knows it from the reports: recorded in MLflow and shown meanwhile."""

from __future__ import annotations

from flows.recording.record import AblationRecord
from flows.runtime.display import WorkerView
from flows.workers.orders import RunOrder
from flows.workers.reports import Began, Ended, Finished, Iterated, Made, Progressed, Report, Started
from turnwise import progress
from turnwise.errors import TrainingEnded, TurnwiseError
from turnwise.runs.state import Prepared, Run


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
                self.outcome = TrainingEnded(report.reason, report.fault)
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
