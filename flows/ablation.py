"""Ablation: runs every variant with every seed from one preparation and compares them."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from flows.needs.disk import disk_guard
from flows.needs.fitting import require_memory
from flows.needs.model_seconds import model_seconds
from flows.prepare import evaluate_baselines, evaluate_warm_start, prepare_materials, prepare_policy
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
from flows.run_state import Run
from flows.runtime.display import Display
from flows.runtime.flow_artifacts import FlowProgress, publish_results
from flows.runtime.flow_runs import flow_run
from flows.runtime.work_left import stages_of_ablation
from flows.workers.left_out import divided, require_none, said_of
from flows.workers.sharing import shared_runs
from tasks.observing import observing
from tasks.report.report import ReportedRun, ReportParameters, read_report, report
from turnwise.data.outcomes import LeftOut
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
    left_out: list[LeftOut]
    """The runs that a fault has left out; the report is over the others."""

    def require_whole(self) -> None:
        """Raise TrainingEnded if a fault has left out runs."""
        require_none(self.left_out)


@flow_run("comparison", "{experiment.ablation.name}")
def comparison(experiment: Experiment, processes: int | None = None, quiet: bool = False) -> AblationResult:
    """`compare` as a flow run of its own, shown in the terminal unless it is to be `quiet`."""
    return compare(experiment, Console(quiet=quiet), processes)


def compare(experiment: Experiment, console: Console, processes: int | None = None) -> AblationResult:
    """Prepare once, run every variant with every seed, record, and write the report.

    The runs are made by whom `compute.runner` names, or by so many `processes` of this machine. Where there are more of
    them than runs, the others sample ahead (`rollout.lag`). The results do not depend on who makes a run.

    A run that a guard or an alarm ends is an outcome: it is tested and counts. One that a fault ends is left out, which
    the report and the result say.

    Raises:
        ConfigurationError: the device has too little memory, raised before anything is computed, or the disk has too
            little room, raised before anything long is.
        TrainingEnded: a fault has left out every run.
    """
    began = time.monotonic()
    processes = experiment.compute.runner.with_processes(processes).processes
    require_store(tracking_uri(experiment))
    require_place()
    require_memory(experiment, processes)
    told = FlowProgress(experiment.ablation.name)
    display = Display(console, stages_of_ablation(experiment), processes, told.reached, model_seconds(experiment))
    with display.showing(), observing(disk_guard(experiment, processes)):
        prepared = prepare_policy(experiment, prepare_materials(experiment))
        baselines = evaluate_baselines(experiment, prepared)
        warm_start = evaluate_warm_start(experiment, prepared)
        record = AblationRecord(experiment, prepared)
        record.compared_with({**baselines, WARM_START: warm_start})
        with shared_runs(experiment, prepared, record, display, console, processes) as shared:
            runs, left_out = divided(shared.outcomes())
        reported = _report(experiment, baselines, warm_start, prepared.tokenizer, runs, left_out)
    evaluations = [*baselines.values(), warm_start]
    made = [*evaluations, *all_references(runs)]
    digest = digest_of([str(reference) for reference in [reported, *made]])
    if display.computed:
        seconds = time.monotonic() - began + shared.seconds
        keep_time(reported, seconds, 1 + shared.number, display.made.issuperset(made))
    data = with_circumstances(read_report(reported), experiment, prepared, reported, evaluations, runs)
    folder = results_folder(experiment)
    digests = digests_of(experiment, digest, prepared, {**baselines, WARM_START: warm_start}, runs)
    repeat = compared_with_former(folder, digests)
    write_results(folder, data, digests)
    outcomes = [] if data.outcomes is None else data.outcomes.sentences()
    record.close(folder / "report.html", digest, summary_metrics(data), outcomes, said_of(left_out))
    publish_results(data, folder / "report.html", tracking_uri(experiment))
    told.complete()
    return AblationResult(data, folder, digest, repeat, display.computed, display.found, left_out)


def _report(
    experiment: Experiment,
    baselines: dict[str, Reference],
    warm_start: Reference,
    tokenizer: Reference,
    runs: list[Run],
    left_out: list[LeftOut],
) -> Reference:
    return report(
        ReportParameters(
            title=experiment.ablation.name,
            world=experiment.world,
            rewards=experiment.rewards,
            runs=[ReportedRun(variant=run.variant, seed=run.seed, ended=run.ended) for run in runs],
            left_out=left_out,
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
