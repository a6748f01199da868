"""Publish an ablation: from its artifacts to the report, the digests and MLflow. No stage is called."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path

from flows.health import judge_start
from flows.plan import Plan
from flows.recording.exported_policy import register_best
from flows.recording.record import AblationRecord, tracking_uri
from turnwise.data.outcomes import LeftOut
from turnwise.experiment import Experiment
from turnwise.reporting.formatting import budget_sentences, race_sentences
from turnwise.results.cells import WARM_START
from turnwise.results.report_data import ReportData
from turnwise.store.digests import digest_of
from turnwise.tracking.finding import find_runs
from turnwise.training_runs.metrics import summary_metrics
from turnwise.training_runs.results import (
    all_references,
    compared_with_former,
    digests_of,
    read_report,
    results_folder,
    with_circumstances,
    write_results,
)
from turnwise.training_runs.state import AblationOutcome, require_none, said_of

logger = logging.getLogger(__name__)


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


def publish(
    experiment: Experiment, outcome: AblationOutcome, record: AblationRecord, computed: int, found: int
) -> AblationResult:
    """Write the report and the digests, and finish the ablation's record in MLflow.

    `computed` and `found` are the numbers of stages that were computed now, and that came from the cache.
    """
    evaluations = {**outcome.baselines, WARM_START: outcome.warm_start}
    made = [*evaluations.values(), *all_references(outcome.runs)]
    digest = digest_of([str(reference) for reference in [outcome.report, *made]])
    data = with_circumstances(
        read_report(outcome.report),
        experiment,
        outcome.prepared,
        outcome.report,
        list(evaluations.values()),
        outcome.runs,
    )
    folder = results_folder(experiment)
    digests = digests_of(experiment, record.code, digest, outcome.prepared, evaluations, outcome.runs)
    repeat = compared_with_former(folder, digests)
    write_results(folder, data, digests)
    sentences = [] if data.outcomes is None else data.outcomes.sentences()
    seeds = [] if data.race is None else race_sentences(data.race)
    written = None if data.costs is None else data.costs.at_budget
    budget = [] if written is None else budget_sentences(written)
    record.tracked.close(
        folder / "report.html", digest, summary_metrics(data), sentences, said_of(outcome.left_out), seeds, budget
    )
    if (name := experiment.tracking.register_as) is not None:
        uri = tracking_uri(experiment)
        if (best := register_best(name, find_runs(uri, record.tracked.parent.id), uri)) is None:
            logger.warning("no policy was registered as %s: every run was ended before its last evaluation", name)
        else:
            logger.info("the policy of %s is registered in MLflow as models:/%s@best", best.name, name)
    return AblationResult(data, folder, digest, repeat, computed, found, outcome.left_out)


def publish_recorded(plan: Plan) -> AblationResult:
    """Publish an ablation that is recorded as a whole, and log the warnings of its runs once more."""
    experiment, outcome = plan.experiment, plan.outcome
    assert outcome is not None, "it is the plan of an ablation"
    record = AblationRecord(experiment, outcome.prepared)
    record.tracked.compared_with({**outcome.baselines, WARM_START: outcome.warm_start})
    for run in outcome.runs:
        judge_start(run)
        if run.ended is not None:
            logger.warning("%s. The policy that it ended with is tested, and counts like any other", run.ended.message)
        record.whole(run)
    return publish(experiment, outcome, record, 0, len(plan.stages))
