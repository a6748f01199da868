"""Sweep: tries values of some keys, before variants are compared.

A sweep is an ablation whose variants are the candidates, with two differences that keep the choice apart from the
comparison that follows it:

* its seeds are others than those of the comparison (`sweep_seeds`);
* its runs are not tested: they count by their last evaluation on the validation task set. No test task is played, by
  them or by a baseline policy. A run that a guard or an alarm ends is evaluated where it ends, and counts.

Everything is cached as in an ablation: a candidate that was tried before costs nothing.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from prefect import flow
from rich.console import Console

from flows.plan import plan_runs
from flows.prepare import prepare_materials, prepare_policy
from flows.report import ComputedRuns, open_record
from flows.runtime.disk import disk_guard
from flows.runtime.flow_artifacts import FlowProgress
from flows.runtime.flow_runs import untagged_tasks
from flows.workers.sharing import shared_runs
from turnwise.agent.playing import the_world
from turnwise.config.overlays import merged, with_value
from turnwise.config.sweeps import Candidate
from turnwise.data.outcomes import LeftOut
from turnwise.data.task_sets import tasks_of
from turnwise.errors import ConfigurationError
from turnwise.experiment import Experiment, build, require_distinct_variants
from turnwise.records.record import recording_store
from turnwise.records.results import all_references, results_folder
from turnwise.reporting.sweep import SweepReport
from turnwise.results.cells import task_means, whole_curve
from turnwise.results.outcomes import collected, ended_run
from turnwise.statistics import ReferencePoints, Results, judge
from turnwise.statistics.curves import Points
from turnwise.store.atomic_write import write_whole
from turnwise.store.default import require_place
from turnwise.store.digests import digest_of
from turnwise.training_runs.memory import crowded, require_memory
from turnwise.training_runs.observing import observing
from turnwise.training_runs.seeds import every_run
from turnwise.training_runs.state import Prepared, Run, divided, said_of
from turnwise.world import World

logger = logging.getLogger(__name__)

FIRST_SEED = 1001
"""Seeds of sweeps are counted from here; those of the comparison are left out."""


@dataclass(frozen=True)
class SweepResult(ComputedRuns):
    """What a sweep found and how it was computed. The folder has `sweep.csv` and `sweep.json`."""

    report: SweepReport


def sweep_seeds(experiment: Experiment, number: int) -> list[int]:
    """So many seeds, none of which the experiment's own comparison uses."""
    used_seeds = set(experiment.ablation.all_seeds)
    return list(itertools.islice((seed for seed in itertools.count(FIRST_SEED) if seed not in used_seeds), number))


def sweep_experiment(
    experiment: Experiment, candidates: Sequence[Candidate], variant: str | None = None, seeds: int = 3
) -> Experiment:
    """The ablation of a sweep: the parameters as they are, or one variant of theirs, with the values of each candidate.

    Raises ConfigurationError for values that cannot be set, that all variants share, or that are no variants.
    """
    base = experiment if variant is None else experiment.variant(variant)
    values = base.values()
    own = f"-{variant}" if variant is not None else ""
    values["ablation"] |= {
        "name": f"{experiment.ablation.name}{own}-sweep",
        "seeds": sweep_seeds(experiment, seeds),
        "variants": [candidate.name for candidate in candidates],
    }
    values["variants"] = {candidate.name: _changes(candidate, values) for candidate in candidates}
    sweep_ablation = build(values, like=experiment)
    require_distinct_variants(sweep_ablation)
    return sweep_ablation


def _changes(candidate: Candidate, values: Mapping[str, object]) -> dict[str, object]:
    """A candidate as a variant's changes; none for one that has the values of the parameters already."""
    changes: dict[str, object] = {}
    for key, value in candidate.values.items():
        changes = with_value(changes, key, value)
    return {} if merged(values, changes) == values else changes


@flow(name="sweep", flow_run_name="{experiment.ablation.name}", validate_parameters=False, persist_result=False)
@untagged_tasks
def sweep(
    experiment: Experiment, candidates: Sequence[Candidate], processes: int | None = None, quiet: bool = False
) -> SweepResult:
    """Train every candidate with every seed, and compare them on the validation task set.

    `experiment` is what `sweep_experiment` made of these candidates. A run that a guard or an alarm ends counts, with
    its policy at the end; one that a fault ends is left out. The runs are made by whom `compute.runner` names, or by so
    many `processes`, as those of an ablation; the results do not depend on it.

    Raises:
        ConfigurationError: the device has too little memory or the disk too little room.
        TrainingEnded: a fault has left out every run.
    """
    processes = experiment.compute.runner.with_processes(processes).processes
    recording_store(experiment)
    require_place()
    require_memory(experiment, processes)
    console = Console(quiet=quiet)
    flow_progress = FlowProgress(experiment.ablation.name)
    plan = plan_runs(experiment, tested=False)
    if not plan.is_recorded and (warning := crowded(experiment, processes)):
        logger.warning("%s", warning)
    display = plan.display(console, processes, flow_progress.reached)
    with display.showing(), observing(disk_guard(experiment, processes)):
        prepared = prepare_policy(experiment, prepare_materials(experiment))
        record = open_record(experiment, prepared)
        with (
            record.open_runs(),
            shared_runs(experiment, prepared, record, display, console, processes, tested=False) as shared,
        ):
            runs, left_out = divided(shared.outcomes(every_run(experiment)))
    report = _report(experiment, candidates, prepared, runs, left_out)
    digest = digest_of([str(reference) for reference in all_references(runs)])
    folder = results_folder(experiment)
    write_whole(folder / "sweep.json", report.to_json())
    write_whole(folder / "sweep.csv", report.to_csv())
    outcomes = [] if report.outcomes is None else report.outcomes.sentences()
    record.tracked.close(
        folder / "sweep.csv", digest, outcomes=outcomes, fault=said_of(left_out), finding=report.finding()
    )
    flow_progress.complete()
    return SweepResult(folder, digest, display.computed, display.found, left_out, report)


def _report(
    experiment: Experiment,
    candidates: Sequence[Candidate],
    prepared: Prepared,
    runs: Sequence[Run],
    left_out: Sequence[LeftOut],
) -> SweepReport:
    world = the_world(experiment.world)
    column = world.primary_column
    start = task_means(runs[0].start, world, column)
    frame = ReferencePoints(Results({0: start}) if start else None)
    by_variant: dict[str, list[Run]] = {}
    curves: dict[str, list[Points]] = {}
    for run in runs:
        by_variant.setdefault(run.variant, []).append(run)
        evaluations = [iteration.evaluation for iteration in run.iterations]
        curves.setdefault(run.variant, []).append(whole_curve(run.start, evaluations, world, run.ended))
    judgement = judge(
        column.heading,
        {name: Results({run.seed: _last(run, world) for run in runs}) for name, runs in by_variant.items()},
        frames=dict.fromkeys(by_variant, frame),
        curves=curves,
        stated=experiment.ablation.success_threshold,
        share=column.percent,
    )
    tasks = len(tasks_of(prepared.validation_task_set, "validation"))
    early_ends = [ended_run(run.variant, run.seed, run.ended) for run in runs if run.ended is not None]
    return SweepReport(
        list(candidates),
        experiment.ablation.all_seeds,
        tasks,
        judgement,
        collected([run.variant for run in runs], early_ends, left_out),
    )


def _last(run: Run, world: World) -> dict[str, float]:
    """The mean of each validation task in the evaluation after the last iteration."""
    evaluation = run.iterations[-1].evaluation
    assert evaluation is not None, "the last iteration is always evaluated"
    means = task_means(evaluation, world, world.primary_column)
    if not means:
        raise ConfigurationError(
            f"a sweep's runs must have a value of {world.primary_column.heading!r} on the validation task set; "
            f"{run.name} has none",
            "TW-missing-measure",
        )
    return means
