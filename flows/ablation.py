"""Ablation: runs every variant with every seed from one preparation and compares them."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from flows.needs.disk import DiskGuard, needs_of
from flows.needs.fitting import require_memory
from flows.prepare import Prepared, evaluate_baselines, evaluate_warm_start, prepare_materials, prepare_policy
from flows.recording.record import AblationRecord, tracking_uri
from flows.recording.recorded_metrics import summary_metrics
from flows.recording.results import (
    all_references,
    compared_with_former,
    digests_of,
    keep_time,
    results_folder,
    with_circumstances,
    write_results,
)
from flows.roster import plotted_measures
from flows.run import run_variant
from flows.run_state import Run
from flows.runtime.display import Display, expected_work
from flows.runtime.flow_artifacts import FlowProgress, publish_results
from flows.runtime.flow_runs import flow_run
from flows.runtime.sampler import Sampler, sampling_ahead
from flows.runtime.worker_processes import WorkerProcesses, worker_processes
from tasks.observing import observing
from tasks.report.report import ReportParameters, RunName, read_report, report
from turnwise.errors import TrainingEnded
from turnwise.experiment import Experiment
from turnwise.reporting.data.cells import WARM_START
from turnwise.reporting.data.report_data import ReportData
from turnwise.store import Reference
from turnwise.store.default import require_place
from turnwise.store.digests import digest_of
from turnwise.tracking.database import require_store


@dataclass(frozen=True)
class AblationResult:
    """The report data of an ablation and how it was computed."""

    report: ReportData
    folder: Path
    """Folder of the report."""
    digest: str
    """Digest of all results: the same parameters and seeds give the same digest."""
    repeat: str
    """Whether earlier results with these parameters had this digest, and if not, why; empty where there are none."""
    computed: int
    found: int
    """Numbers of stages that were computed now, and that came from the cache."""


@flow_run("comparison", "{experiment.ablation.name}")
def comparison(experiment: Experiment, processes: int = 1, quiet: bool = False) -> AblationResult:
    """`compare` as a flow run of its own, shown in the terminal unless it is to be `quiet`."""
    return compare(experiment, Console(quiet=quiet), processes)


def compare(experiment: Experiment, console: Console, processes: int = 1) -> AblationResult:
    """Prepare once, run every variant with every seed, record, and write the report.

    The runs are shared by `processes` processes, this one included; where there are more of them than runs, the others
    sample ahead (`rollout.lag`). The results do not depend on their number.

    Raises:
        ConfigurationError: the device has too little memory, raised before anything is computed, or the disk has too
            little room, raised before anything long is.
        TrainingEnded: a guard or an alarm has ended some runs; raised once every run has been tried.
    """
    began = time.monotonic()
    require_store(tracking_uri(experiment))
    require_place()
    require_memory(experiment, processes)
    display = Display(console, expected_work(experiment), processes)
    needed = needs_of(experiment, processes)
    told = FlowProgress(experiment.ablation.name, expected_work(experiment))
    with display.showing(), observing(told), observing(DiskGuard(needed.disk if needed else 0)):
        prepared = prepare_policy(experiment, prepare_materials(experiment))
        baselines = evaluate_baselines(experiment, prepared)
        warm_start = evaluate_warm_start(experiment, prepared)
        record = AblationRecord(experiment, prepared)
        record.compared_with({**baselines, WARM_START: warm_start})
        with_runs = min(processes, len(experiment.ablation.variants) * len(experiment.ablation.seeds))
        samplers = processes - with_runs
        report, warn = display.finished_by_worker, console.print
        with (
            worker_processes(experiment, prepared, with_runs - 1, report, warn, samplers - 1) as workers,
            sampling_ahead(samplers > 0, report, warn) as sampler,
        ):
            runs = every_run(experiment, prepared, record, workers, sampler)
        reported = _report(experiment, baselines, warm_start, prepared.tokenizer, runs)
    evaluations = [*baselines.values(), warm_start]
    made = [*evaluations, *all_references(runs)]
    digest = digest_of([str(reference) for reference in [reported, *made]])
    if display.computed:
        ahead = 0.0 if sampler is None else sampler.seconds
        seconds, number = time.monotonic() - began + workers.seconds + ahead, 1 + workers.number + (ahead > 0)
        keep_time(reported, seconds, number, display.made.issuperset(made))
    data = with_circumstances(read_report(reported), experiment, prepared, reported, evaluations, runs)
    folder = results_folder(experiment)
    digests = digests_of(experiment, digest, prepared, {**baselines, WARM_START: warm_start}, runs)
    repeat = compared_with_former(folder, digests)
    write_results(folder, data, digests)
    record.close(folder / "report.html", digest, summary_metrics(data))
    publish_results(data, folder / "report.html", tracking_uri(experiment))
    told.complete()
    return AblationResult(data, folder, digest, repeat, display.computed, display.found)


def every_run(
    experiment: Experiment,
    prepared: Prepared,
    record: AblationRecord,
    workers: WorkerProcesses,
    sampler: Sampler | None = None,
) -> list[Run]:
    """Run every variant with every seed: first those that no other process has taken, then whatever is still missing.

    If a run is ended early, the other runs still go on.

    Raises:
        TrainingEnded: some run was ended, so the comparison would not be the one that was asked for.
    """
    made: dict[tuple[str, int], Run | TrainingEnded] = {}

    def make(variant: str, seed: int) -> None:
        try:
            made[variant, seed] = run_recorded(experiment, prepared, record, variant, seed, sampler)
        except TrainingEnded as error:
            made[variant, seed] = error

    for variant, seed in workers.assignment.runs():
        make(variant, seed)
    workers.wait()
    every = [(variant, seed) for seed in experiment.ablation.seeds for variant in experiment.ablation.variants]
    for variant, seed in every:
        if (variant, seed) not in made:
            make(variant, seed)
    runs = [run for each in every if isinstance(run := made[each], Run)]
    ended = [error for each in every if isinstance(error := made[each], TrainingEnded)]
    if len(ended) == 1 and not runs:
        raise ended[0]
    if ended:
        raise TrainingEnded(
            f"{len(ended)} of {len(ended) + len(runs)} runs were ended early, so there is nothing to compare yet; "
            "what the others made is kept. Change what the messages say, or leave the variant or the seed out.\n"
            + "\n".join(map(str, ended))
        )
    return runs


def run_recorded(
    experiment: Experiment,
    prepared: Prepared,
    record: AblationRecord,
    variant: str,
    seed: int,
    sampler: Sampler | None = None,
) -> Run:
    """Run one variant with one seed, recorded as a child run of the ablation in MLflow; failures are recorded too."""
    own = experiment.variant(variant)
    name = f"{variant} seed {seed}"
    record.open(name, variant, seed, own)
    try:
        run = run_variant(own, prepared, variant, seed, record.iteration, sampler, record.start)
    except Exception as error:
        record.fail(name, repr(error))
        raise
    record.finish(run)
    return run


def _report(
    experiment: Experiment,
    baselines: dict[str, Reference],
    warm_start: Reference,
    tokenizer: Reference,
    runs: list[Run],
) -> Reference:
    return report(
        ReportParameters(
            title=experiment.ablation.name,
            world=experiment.world,
            rewards=experiment.rewards,
            runs=[RunName(variant=run.variant, seed=run.seed) for run in runs],
            seed=experiment.evaluation.seed,
            success_threshold=experiment.ablation.success_threshold,
            attempts=experiment.agent.mode.attempts or 1,
            plotted=plotted_measures(),
        ),
        baselines=baselines,
        warm_start=warm_start,
        starts=[run.start for run in runs],
        iterations=[[iteration.artifacts for iteration in run.iterations] for run in runs],
        tests=[run.test for run in runs if run.test is not None],
        tokenizer=tokenizer,
    )
