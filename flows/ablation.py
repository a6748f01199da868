"""Ablation: runs every variant with every seed from one preparation and compares them.

The seeds are listed, or added until the comparisons are decided (`turnwise.training_runs.seeds`).
"""

from __future__ import annotations

import logging
import time

from prefect import flow
from rich.console import Console

from flows.plan import plan_ablation
from flows.prepare import evaluate_baselines, evaluate_warm_start, prepare_materials, prepare_policy
from flows.report import AblationResult, open_record, publish, report_runs
from flows.runtime.disk import disk_guard, require_budget
from flows.runtime.flow_artifacts import FlowProgress, publish_results
from flows.runtime.flow_runs import flow_run_log, untagged_tasks
from flows.workers.sharing import shared_runs
from turnwise.experiment import Experiment
from turnwise.records.record import recording_store
from turnwise.records.results import all_references, keep_time
from turnwise.reporting.finding import report_finding
from turnwise.results.cells import WARM_START
from turnwise.store.default import require_place
from turnwise.training_runs.memory import crowded, require_memory
from turnwise.training_runs.observing import observing
from turnwise.training_runs.seeds import make_runs
from turnwise.training_runs.state import AblationOutcome, divided

logger = logging.getLogger(__name__)


@flow(name="comparison", flow_run_name="{experiment.ablation.name}", validate_parameters=False, persist_result=False)
@untagged_tasks
def comparison(experiment: Experiment, processes: int | None = None, quiet: bool = False) -> AblationResult:
    """Prepare once, run every variant with every seed that it needs, record, and write the report.

    The runs are made by whom `compute.runner` names, or by so many `processes` of this machine. Where there are more of
    them than runs, the others sample ahead (`rollout.lag`). The results do not depend on who makes a run.

    A run that a guard or an alarm ends is an outcome: it is tested and counts. One that a fault ends is left out, which
    the report and the result say. Progress is shown in the terminal unless the flow is to be `quiet`.

    Raises:
        ConfigurationError: the device has too little memory, raised before anything is computed, or the disk has too
            little room, raised before anything long is.
        TrainingEnded: a fault has left out every run.
    """
    began, console = time.monotonic(), Console(quiet=quiet)
    processes = experiment.compute.runner.with_processes(processes).processes
    store = recording_store(experiment)
    require_place()
    require_budget(experiment)
    require_memory(experiment, processes)
    progress = FlowProgress(experiment.ablation.name)
    plan = plan_ablation(experiment)
    log = flow_run_log()
    if not plan.is_recorded and (warning := crowded(experiment, processes)):
        logger.warning("%s", warning)
    display = plan.display(console, processes, progress.reached, log)
    with display.showing(), observing(disk_guard(experiment, processes)):
        prepared = prepare_policy(experiment, prepare_materials(experiment))
        baselines = evaluate_baselines(experiment, prepared)
        warm_start = evaluate_warm_start(experiment, prepared)
        record = open_record(experiment, prepared)
        record.tracked.compared_with({**baselines, WARM_START: warm_start})
        with record.open_runs():
            with shared_runs(experiment, prepared, record, display, console, processes) as shared:
                outcomes = make_runs(
                    experiment, warm_start, shared.outcomes, lambda runs: display.expect_less(plan.kinds_of(runs))
                )
                runs, left_out = divided(outcomes)
            report = report_runs(experiment, baselines, warm_start, prepared.tokenizer, runs, left_out).make()
    if display.computed:
        seconds = time.monotonic() - began + shared.seconds
        references = [*baselines.values(), warm_start, *all_references(runs)]
        keep_time(report, seconds, 1 + shared.number, display.computed_artifacts.issuperset(references))
    outcome = AblationOutcome(prepared, baselines, warm_start, runs, left_out, report)
    with console.status("writing the report, and what MLflow shows of it"):
        result = publish(experiment, outcome, record, display.computed, display.found)
        publish_results(result.report, result.folder / "report.html", store)
    log(report_finding(result.report) or f"{result.report.title} is compared")
    log(f"the report is {result.folder / 'report.html'}")
    progress.complete()
    return result
