"""Runs experiments: what is recorded is found without Prefect; else its server is started."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console

from flows.ablation import AblationResult, comparison
from flows.needs.model_seconds import model_seconds
from flows.prepare import Prepared, evaluate_baselines, evaluate_warm_start, prepare_materials, prepare_policy
from flows.python.ablation_report import AblationReport
from flows.python.recorded import RecordedRuns, runs
from flows.recording.record import tracking_uri
from flows.runtime.display import Display
from flows.runtime.flow_runs import flow_run
from flows.runtime.process_settings import prepare_process
from flows.runtime.work_left import stages_of_preparation, stages_of_reference_points
from tasks.observing import Observer, StageCall, observing
from tasks.stage import computes
from turnwise.data.outcomes import EarlyEnd, LeftOut
from turnwise.experiment import Experiment, single
from turnwise.reporting.data.cells import WARM_START
from turnwise.store import default_store

Follow = Callable[[StageCall], None]
"""Called with every stage as soon as it has returned, computed or found."""


class FinishedAblation(RecordedRuns):
    """An ablation that has been run: its report, and its runs as they were recorded."""

    def __init__(self, experiment: Experiment, result: AblationResult) -> None:
        self.experiment, self.result = experiment, result
        self.report = AblationReport(result.report, result.folder)
        found = runs(experiment.ablation.name, tracking=tracking_uri(experiment))
        super().__init__(list(found), found.tracking)

    @property
    def digest(self) -> str:
        """Digest of all results: the same parameters and seeds give the same digest."""
        return self.result.digest

    @property
    def ended(self) -> dict[str, EarlyEnd]:
        """By name of the run, how a guard or an alarm ended it; runs that made all their iterations are left out."""
        return {run.name: run.ended for run in self if run.ended is not None}

    @property
    def left_out(self) -> list[LeftOut]:
        """The runs that a fault has left out of the report."""
        return self.result.left_out

    def __repr__(self) -> str:
        computed, found = self.result.computed, self.result.found
        return f"<ablation {self.experiment.ablation.name}: {computed} stages computed, {found} found; {self.digest}>"

    def _repr_html_(self) -> str:
        return self.report._repr_html_()


def ablation(
    experiment: Experiment, *, processes: int | None = None, follow: Follow | None = None, quiet: bool = False
) -> FinishedAblation:
    """Compare the variants over the seeds: run, record and report them. What is computed already is found.

    The folder `results/<name>` of the project gets the report, MLflow a run for each variant and seed. A run that a
    guard or an alarm ends is tested as it then is, and counts; `ended` of what is returned has these.

    Args:
        experiment: what `load` returned.
        processes: how many processes of this machine share the runs; by default whoever `compute.runner` names. The
            results are the same.
        follow: called with every stage of this process that has returned, for a progress display of one's own.
        quiet: show no progress.

    Raises:
        ConfigurationError: the device has too little memory or the disk too little room.
        TrainingEnded: a fault (`mismatch`, `not_finite`) has left out every run. Where it has left out some, the report
            is over the others, and `left_out` of what is returned names them.
    """
    prepare_process()
    with _following(follow):
        return FinishedAblation(experiment, comparison.found_or_run(experiment, processes, quiet))


def run(
    experiment: Experiment,
    variant: str | None = None,
    seed: int | None = None,
    *,
    processes: int | None = None,
    follow: Follow | None = None,
    quiet: bool = False,
) -> FinishedAblation:
    """Train and test one variant with one seed; by default the parameters as they are, and the ablation's first seed.

    Everything else is as in `ablation`. Raises as `ablation` does.
    """
    return ablation(single(experiment, variant, seed), processes=processes, follow=follow, quiet=quiet)


def prepare(experiment: Experiment, *, follow: Follow | None = None, quiet: bool = False) -> Prepared:
    """Make the task sets, demonstrations, tokenizer and warm start of an experiment: references to artifacts."""
    prepare_process()
    with _following(follow):
        return _preparation.found_or_run(experiment, quiet)


def evaluate(
    experiment: Experiment, *, follow: Follow | None = None, quiet: bool = False
) -> dict[str, dict[str, float]]:
    """Evaluate the baseline policies and the warm start on the test task set: their metrics, by name."""
    prepare_process()
    with _following(follow):
        return _evaluation.found_or_run(experiment, quiet)


@flow_run("preparation", "prepare {experiment.world.name}")
def _preparation(experiment: Experiment, quiet: bool = False) -> Prepared:
    with Display(Console(quiet=quiet), stages_of_preparation(experiment), of_model=model_seconds(experiment)).showing():
        return prepare_policy(experiment, prepare_materials(experiment))


@flow_run("evaluation", "evaluate {experiment.world.name}")
def _evaluation(experiment: Experiment, quiet: bool = False) -> dict[str, dict[str, float]]:
    expected = stages_of_preparation(experiment) + stages_of_reference_points(experiment)
    with Display(Console(quiet=quiet), expected, of_model=model_seconds(experiment)).showing():
        prepared = prepare_policy(experiment, prepare_materials(experiment))
        evaluated = {
            **evaluate_baselines(experiment, prepared),
            WARM_START: evaluate_warm_start(experiment, prepared),
        }
    return {name: default_store().metrics(reference) for name, reference in evaluated.items()}


class _Follower(Observer):
    """Hands stages on. Those that are only looked up are held until it is known that nothing has to be computed: else
    they are looked up again by the flow run, and would be handed on twice.
    """

    def __init__(self, follow: Follow) -> None:
        self._follow = follow
        self._held: list[StageCall] = []

    def finished(self, call: StageCall) -> None:
        if not computes():
            self._held.append(call)
            return
        self._held.clear()
        self._follow(call)

    def close(self) -> None:
        for call in self._held:
            self._follow(call)


@contextmanager
def _following(follow: Follow | None) -> Iterator[None]:
    if follow is None:
        yield
        return
    follower = _Follower(follow)
    with observing(follower):
        yield
    follower.close()
