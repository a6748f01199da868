"""The report and the record of an ablation: what all its runs come to, in MLflow and in `results/<name>`."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tasks.caching import all_dependencies
from tasks.calls import Call, call
from tasks.credit.credit import rule_code
from tasks.playing import playing_code, world_code
from tasks.report.report import report
from tasks.restoring import MODELS, trajectories_of
from turnwise.credit import rules_of
from turnwise.credit.selection import RULES
from turnwise.data.outcomes import LeftOut
from turnwise.experiment import Experiment
from turnwise.exports.policy import register_best
from turnwise.plugins import MONITOR, SELECTION_RULE, plugin_modules
from turnwise.records.metrics import comparison_columns, summary_metrics
from turnwise.records.record import AblationRecord, tracking_uri
from turnwise.records.results import (
    all_references,
    compared_with_former,
    digests_of,
    read_report,
    results_folder,
    with_circumstances,
    write_results,
)
from turnwise.reporting.finding import report_finding
from turnwise.reporting.formatting import budget_sentences, race_sentences
from turnwise.results.cells import WARM_START
from turnwise.results.report import ReportedRun, ReportParameters
from turnwise.results.report_data import ReportData
from turnwise.store import Reference
from turnwise.store.digests import digest_of
from turnwise.store.fingerprint import DETERMINES_NOTHING, fingerprint
from turnwise.tracking.finding import find_runs
from turnwise.training_runs import iteration_stages
from turnwise.training_runs.iteration_stages import plotted_measures
from turnwise.training_runs.state import AblationOutcome, Prepared, Run, play_parameters, require_none, said_of

logger = logging.getLogger(__name__)

STAGES_OF_PREPARATION = ("task_set", "demonstrations", "tokenizer", "initial_policy", "warm_start")


def open_record(experiment: Experiment, prepared: Prepared) -> AblationRecord:
    """The MLflow record of an ablation, made or found, to which its runs are added."""
    return AblationRecord(experiment, prepared, computing_code(experiment), trajectories_of)


def computing_code(experiment: Experiment) -> str:
    """The fingerprint of all code that determines an ablation's numbers, its world's included."""
    dependencies = all_dependencies()
    stages = [dependencies[name] for name in (*STAGES_OF_PREPARATION, *(each.task for each in iteration_stages.STAGES))]
    kernels = sorted({module for stage in stages for module in stage.computing_modules})
    variants = [experiment.variant(name) for name in experiment.ablation.variants]
    plugins = sorted({module for variant in variants for module in plugin_modules_of(variant)})
    code = fingerprint([*kernels, *world_code(experiment.world), *plugins], without=[*DETERMINES_NOTHING])
    return digest_of([code, *(stage.own_code for stage in stages)])


def plugin_modules_of(experiment: Experiment) -> list[str]:
    """The modules of all plug-ins that an experiment names."""
    return [
        *playing_code(play_parameters(experiment)),
        *rule_code(rules_of(experiment.credit)),
        *plugin_modules(SELECTION_RULE, [experiment.selection.rule], RULES),
        *plugin_modules(MONITOR, experiment.monitors.added.values()),
    ]


def report_runs(
    experiment: Experiment,
    baselines: Mapping[str, Reference],
    warm_start: Reference,
    tokenizer: Reference,
    runs: Sequence[Run],
    left_out: Sequence[LeftOut],
) -> Call:
    """Compare the runs that count; `warm_start` is its evaluation on the test task set, as the `baselines` are."""
    return call(
        report,
        lambda: ReportParameters(
            title=experiment.ablation.name,
            world=experiment.world,
            rewards={run.variant: experiment.variant(run.variant).rewards for run in runs},
            runs=[ReportedRun(variant=run.variant, seed=run.seed, ended=run.ended) for run in runs],
            left_out=list(left_out),
            seed=experiment.evaluation.seed,
            success_threshold=experiment.ablation.success_threshold,
            attempts=experiment.agent.mode.attempts or 1,
            until=experiment.ablation.until,
            plotted=plotted_measures(),
        ),
        baselines=dict(baselines),
        warm_start=warm_start,
        starts=[run.start for run in runs],
        iterations=[[iteration.artifacts for iteration in run.iterations] for run in runs],
        tests=[run.test for run in runs if run.test is not None],
        tokenizer=tokenizer,
    )


@dataclass(frozen=True)
class ComputedRuns:
    """What runs came to together, and how it was computed."""

    folder: Path
    """Folder of the report, or of a sweep's table."""
    digest: str
    """Digest of all results: the same parameters and seeds give the same digest."""
    computed: int
    found: int
    """Numbers of stages that were computed now, and that came from the cache."""
    left_out: list[LeftOut]
    """The runs that a fault has left out; the report is over the others."""

    def require_whole(self) -> None:
        """Raise TrainingEnded if a fault has left out runs."""
        require_none(self.left_out)


@dataclass(frozen=True)
class AblationResult(ComputedRuns):
    """The report data of an ablation and how it was computed."""

    report: ReportData
    repeat: str
    """Whether earlier results with these parameters had this digest, and if not, why; empty where there are none."""
    recorded_as: str
    """The id of its run in MLflow: other ablations may have its name."""


def publish(
    experiment: Experiment, outcome: AblationOutcome, record: AblationRecord, computed: int, found: int
) -> AblationResult:
    """Write the report and the digests, and finish the ablation's record in MLflow.

    `computed` and `found` are the numbers of stages that were computed now, and that came from the cache.
    """
    evaluations = {**outcome.baselines, WARM_START: outcome.warm_start}
    references = [*evaluations.values(), *all_references(outcome.runs)]
    digest = digest_of([str(reference) for reference in [outcome.report, *references]])
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
    at_budget = None if data.costs is None else data.costs.at_budget
    budget = [] if at_budget is None else budget_sentences(at_budget)
    record.tracked.close(
        folder / "report.html",
        digest,
        summary_metrics(data),
        sentences,
        said_of(outcome.left_out),
        seeds,
        budget,
        finding=report_finding(data),
        comparisons=comparison_columns(data),
    )
    if (name := experiment.tracking.register_as) is not None:
        uri = tracking_uri(experiment)
        if (best := register_best(name, find_runs(uri, record.tracked.parent.id), uri, MODELS.whole_policy)) is None:
            logger.warning("no policy was registered as %s: every run was ended before its last evaluation", name)
        else:
            logger.info("the policy of %s is registered in MLflow as models:/%s@best", best.name, name)
    recorded_as = record.tracked.parent.id
    return AblationResult(folder, digest, computed, found, outcome.left_out, data, repeat, recorded_as)
