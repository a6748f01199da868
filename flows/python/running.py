"""Runs experiments: what is recorded is found without Prefect; else its server is started."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from rich.console import Console

from flows.health import judge_start
from flows.plan import Plan, plan_ablation
from flows.python.recorded import RecordedRuns, runs
from flows.report import AblationResult, open_record, publish
from flows.runtime.flow_runs import ready_for_prefect, ready_to_run, require_machine_and_model, run_flow
from flows.runtime.process_settings import prepare_process
from turnwise.config.sweeps import Range, candidates
from turnwise.data.outcomes import EarlyEnd, LeftOut
from turnwise.experiment import Experiment, after_steps, single
from turnwise.records.record import recording_store, tracking_uri
from turnwise.reporting.ablation_report import AblationReport
from turnwise.results.cells import WARM_START
from turnwise.store.default import require_place
from turnwise.training_runs.observing import FinishedStages, StageCall, notify, observing
from turnwise.training_runs.state import Prepared

if TYPE_CHECKING:
    from flows.sweep import SweepResult

logger = logging.getLogger(__name__)

Follow = Callable[[StageCall], None]
"""Called with every stage as soon as it has returned, computed or found."""


class FinishedAblation(RecordedRuns):
    """An ablation that has been run: its report, and its runs as they were recorded."""

    def __init__(self, experiment: Experiment, result: AblationResult) -> None:
        self.experiment, self.result = experiment, result
        self.report = AblationReport(result.report, result.folder)
        recorded_runs = runs(result.recorded_as, tracking=tracking_uri(experiment))
        super().__init__(list(recorded_runs), recorded_runs.tracking)

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
        counts = f"{self.result.computed} stages computed, {self.result.found} found"
        return f"<ablation {self.experiment.ablation.name}: {counts}; {self.digest}>"

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
    experiment.require_programs()
    plan = plan_ablation(experiment)
    if not plan.is_recorded:
        require_machine_and_model(experiment, processes)
    recording_store(experiment)
    require_place()
    if plan.is_recorded:
        result = _publish_recorded(plan)
        with _following(follow):
            for each in plan.stages:
                notify(each.as_call())
        return FinishedAblation(experiment, result)
    ready_for_prefect(Console(quiet=quiet))
    from flows.ablation import comparison  # imports Prefect

    with _following(follow):
        return FinishedAblation(experiment, run_flow(comparison, experiment, processes, quiet))


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
    ready_to_run(experiment, Console(quiet=quiet))
    from flows.evaluate import preparation  # imports Prefect

    with _following(follow):
        return run_flow(preparation, experiment, quiet)


def evaluate(
    experiment: Experiment, *, after: Sequence[int] = (), follow: Follow | None = None, quiet: bool = False
) -> dict[str, dict[str, float]]:
    """Evaluate the baseline policies and the warm start on the test task set: their metrics, by name.

    Or, so that a short warm start can be chosen, warm starts `after` so many supervised steps each (0: the policy
    without one), on the validation task set. An experiment that begins with one of them finds it.
    """
    prepare_process()
    starts = {f"after {steps}": after_steps(experiment, steps) for steps in after}
    for each in starts.values() or [experiment]:
        ready_to_run(each, Console(quiet=quiet))
    from flows.evaluate import evaluation, warm_starts  # imports Prefect

    with _following(follow):
        if not starts:
            return run_flow(evaluation, experiment, quiet)
        metrics = run_flow(warm_starts, list(starts.values()), quiet)
    return dict(zip(starts, metrics, strict=True))


def sweep(
    experiment: Experiment,
    values: Mapping[str, Sequence[Any] | Range],
    *,
    random: int | None = None,
    variant: str | None = None,
    seeds: int = 3,
    processes: int | None = None,
    quiet: bool = False,
) -> SweepResult:
    """Try values of some keys before variants are compared: on the validation task set, with seeds of their own.

    The folder `results/<name>-sweep` of the project gets `sweep.csv` and `sweep.json`, MLflow a run for each candidate
    and seed. What is computed already is found.

    Args:
        experiment: what `load` returned.
        values: by dotted key, a list of values, or a range to draw from.
        random: how many candidates are drawn; None: every combination of the values.
        variant: the variant of the experiment that the values are tried in; None: the parameters as they are.
        seeds: how many seeds each candidate gets. None of them is a seed of the experiment's own comparison.
        processes: how many processes share the runs; None: as `compute.runner` says. The results are the same.
        quiet: show no progress.

    Raises:
        ConfigurationError: the values cannot be set, or the device or the disk has too little room.
        TrainingEnded: a fault (`mismatch`, `not_finite`) has left out every run.
    """
    prepare_process()
    choices = {key: each if isinstance(each, Range) else list(each) for key, each in values.items()}
    trials = candidates(choices, random)
    ready_to_run(experiment, Console(quiet=quiet), processes)
    from flows.sweep import sweep as compare_values  # imports Prefect
    from flows.sweep import sweep_experiment

    return run_flow(compare_values, sweep_experiment(experiment, trials, variant, seeds), trials, processes, quiet)


def _publish_recorded(plan: Plan) -> AblationResult:
    """Publish an ablation that is recorded as a whole, and log the warnings of its runs once more."""
    experiment, outcome = plan.experiment, plan.outcome
    assert outcome is not None, "it is the plan of an ablation"
    record = open_record(experiment, outcome.prepared)
    record.tracked.compared_with({**outcome.baselines, WARM_START: outcome.warm_start})
    for run in outcome.runs:
        judge_start(run)
        if run.ended is not None:
            logger.warning("%s. The policy that it ended with is tested, and counts like any other", run.ended.message)
        record.whole(run)
    return publish(experiment, outcome, record, 0, len(plan.stages))


def _following(follow: Follow | None) -> AbstractContextManager[None]:
    """Hand every stage that returns in the block on, where somebody wants it."""
    return nullcontext() if follow is None else observing(FinishedStages(follow))
