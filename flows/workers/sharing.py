"""Which run of an ablation is made where: by this process, or by the workers that `compute.runner` names.

This process makes runs too. Once it has computed a stage, it hands all the runs that it has not begun to Prefect's
task runner, between two stages, and goes on with those that no worker has begun: it takes them back, one at a time. If
all is cached, no worker is started. It alone writes to MLflow and to the terminal, also what workers report, as they
report it. What a worker could not make, this process makes, from the last stage that was stored. Who made a run changes
no result.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from rich.console import Console

from flows.plan import stages_not_called
from flows.runtime.sampler import Sampler, sampling_ahead
from flows.workers.runs import FollowedRun, RunOrder, RunRecord, run_recorded
from turnwise.errors import TrainingEnded
from turnwise.experiment import Experiment
from turnwise.records.record import AblationRecord
from turnwise.training_runs.display import Display
from turnwise.training_runs.observing import Observer, StageCall, observing
from turnwise.training_runs.seeds import RunName
from turnwise.training_runs.state import Prepared, Run

if TYPE_CHECKING:
    from flows.workers.processes import ProcessWorkers
    from flows.workers.ray_cluster import RayWorkers

logger = logging.getLogger(__name__)

Workers: TypeAlias = "ProcessWorkers | RayWorkers"
"""Who makes runs for this process."""


class SharedRuns(Observer):
    """The runs of an ablation, shared by this process and its workers: see `sharing`."""

    def __init__(
        self,
        experiment: Experiment,
        prepared: Prepared,
        record: RunRecord,
        make_workers: Callable[[], Workers] | None = None,
        *,
        elsewhere: bool = False,
        computes: bool = False,
        sampler: Sampler | None = None,
        tested: bool = True,
        on_run: Callable[[Run], None] = lambda run: None,
    ) -> None:
        """`elsewhere`: the workers make every run, and this process none. `computes`: something was computed already.

        `sampler` samples ahead for the runs that this process makes (`rollout.lag`). Without `tested` no test task is
        played. `on_run` is called with each run that is done.
        """
        self._experiment, self._prepared, self._record = experiment, prepared, record
        self._make_workers, self._elsewhere, self._sampler = make_workers, elsewhere, sampler
        self._tested, self._on_run, self._computes = tested, on_run, computes
        self._workers: Workers | None = None
        self._outcomes: dict[RunName, Run | TrainingEnded] = {}
        self._followed: dict[RunName, FollowedRun] = {}
        self._remaining: list[RunName] = []
        """What this process has not begun of the runs that were asked for, in order."""

    @property
    def seconds(self) -> float:
        """Wall time of the processes besides this one in seconds, added up."""
        workers = 0.0 if self._workers is None else self._workers.seconds
        return workers + (0.0 if self._sampler is None else self._sampler.seconds)

    @property
    def number(self) -> int:
        """How many processes there have been besides this one."""
        workers = 0 if self._workers is None else self._workers.number
        return workers + (self._sampler is not None and self._sampler.seconds > 0)

    def finished(self, call: StageCall) -> None:
        """Note that something is computed here."""
        self._computes = self._computes or not call.cached

    def share(self) -> None:
        """Once something was computed here, hand the runs that are left to the workers."""
        if self._computes and not self._elsewhere:
            self._hand_out([each for each in self._remaining if each not in self._followed])

    def outcomes(self, names: Sequence[RunName]) -> dict[RunName, Run | TrainingEnded]:
        """These runs, or the faults that ended them. Whatever becomes of one run, the others go on."""
        self._remaining = list(names)
        if self._elsewhere:
            self._hand_out(names)
        with observing(self):
            for each in names:
                self._remaining.remove(each)
                self.share()
                if each not in self._followed or self._take_back(each):
                    self._make_here(each)
            for each in names:
                if each not in self._outcomes:
                    self._await(each)
        return {each: self._outcomes[each] for each in names}

    def finish(self) -> None:
        """Let the workers end, who have nothing more to do."""
        if self._workers is not None:
            self._workers.finish()

    def end(self) -> None:
        """End the workers that are still at work."""
        if self._workers is not None:
            self._workers.kill()

    def _hand_out(self, runs: Sequence[RunName]) -> None:
        """Give runs to the workers."""
        if self._make_workers is None or not runs:
            return
        self._workers = self._workers or self._make_workers()
        for each in runs:
            followed = self._followed[each] = FollowedRun(self._order(*each), self._record)
            self._workers.submit(followed)

    def _order(self, variant: str, seed: int) -> RunOrder:
        return RunOrder(self._experiment, self._prepared, variant, seed, self._tested)

    def _take_back(self, each: RunName) -> bool:
        """Take a run back that was given to the workers; False if one of them has begun it."""
        assert self._workers is not None, "the run was given to workers"
        return self._workers.take_back(self._followed[each])

    def _await(self, each: RunName) -> None:
        """Wait for a run that a worker has begun; if it could not be made there, make it here."""
        assert self._workers is not None, "the run was given to workers"
        self._workers.wait(self._followed[each])
        outcome = self._followed[each].outcome
        if outcome is None:
            self._make_here(each)
        else:
            self._take(each, outcome)

    def _take(self, each: RunName, outcome: Run | TrainingEnded) -> None:
        self._outcomes[each] = outcome
        if isinstance(outcome, Run):
            self._on_run(outcome)
        else:
            logger.warning("%s seed %d is left out: %s", *each, outcome)

    def _make_here(self, each: RunName) -> None:
        try:
            outcome: Run | TrainingEnded = run_recorded(self._order(*each), self._record, self._sampler, self.share)
        except TrainingEnded as error:
            outcome = error
        self._take(each, outcome)


@contextmanager
def shared_runs(
    experiment: Experiment,
    prepared: Prepared,
    record: AblationRecord,
    display: Display,
    console: Console,
    processes: int,
    tested: bool = True,
) -> Iterator[SharedRuns]:
    """The runs of an ablation and their workers. None of these outlives the block.

    So many `processes`, this one included, share the runs. Where there are more of them than runs, the others sample
    ahead (`rollout.lag`). A Ray cluster takes precedence. Without `tested` no test task is played.
    """
    runner = experiment.compute.runner
    on_ray = runner.kind == "ray"
    workers = min(processes, experiment.ablation.runs_at_once) - 1
    samplers = processes - workers - 1

    def make_workers() -> Workers:
        if on_ray:
            from flows.workers.ray_cluster import RayWorkers

            return RayWorkers(runner, display)
        from flows.workers.processes import ProcessWorkers  # imports Prefect

        return ProcessWorkers(workers, samplers - 1, display, console.print)

    with sampling_ahead(samplers > 0, partial(display.finished, process="a worker"), console.print) as sampler:
        shared = SharedRuns(
            experiment,
            prepared,
            record,
            make_workers if on_ray or workers > 0 else None,
            elsewhere=on_ray,
            computes=display.computed > 0,
            sampler=sampler,
            tested=tested,
            on_run=lambda run: display.expect_less(stages_not_called(run)),
        )
        try:
            yield shared
            shared.finish()
        finally:
            shared.end()
