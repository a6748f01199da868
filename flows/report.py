"""The report: what all runs of an ablation come to, from their artifacts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tasks.calls import Call, call
from tasks.report.report import report
from turnwise.data.outcomes import LeftOut
from turnwise.experiment import Experiment
from turnwise.results.report import ReportedRun, ReportParameters
from turnwise.store import Reference
from turnwise.training_runs.iteration_stages import plotted_measures
from turnwise.training_runs.state import Run


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
            rewards=experiment.rewards,
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
