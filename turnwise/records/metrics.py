"""The metrics that MLflow gets of an iteration, each once; a name starts with its group and may end with its unit.

    the groups of an iteration's stages    the metrics of that stage
    validation, test, .._at_horizon        those of an evaluation, `greedy` and `sampled`
    table                                  of an ablation: each row of its table, in the first column and greedy
    seconds, speed, memory                 what the stages cost the machine

A number without a unit in its name is a count, a share or a mean of the world's own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from turnwise.reporting.data.tables import COMPARISON, headline_columns
from turnwise.reporting.formatting import verdict, with_bounds
from turnwise.results.report_data import ReportData
from turnwise.store import Reference, default_store
from turnwise.tracking.finding import RunArtifacts
from turnwise.tracking.values import mlflow_name
from turnwise.training_runs import iteration_stages
from turnwise.training_runs.iteration_stages import IterationStage, MachineCost
from turnwise.training_runs.state import Iteration


def metrics_of(iteration: Iteration) -> dict[str, float]:
    """All metrics of one iteration.

    Success on the validation task set comes first: MLflow's compare page plots the metric that was recorded first.
    """
    return _metrics_of(iteration_stages.iteration_artifacts(iteration))


def _metrics_of(artifacts: Iterable[tuple[IterationStage, Reference]]) -> dict[str, float]:
    metrics: dict[str, float] = {}
    costs: dict[str, float] = {}
    for stage, artifact in artifacts:
        metrics |= _stage_metrics(stage, stage.groups[0], artifact) if stage.groups else {}
        for cost in stage.costs:
            value = _measured(cost, default_store().clock(artifact))
            if value is not None:
                costs[cost.metric] = costs.get(cost.metric, 0.0) + value
    return _success_first({**metrics, **costs}, "validation")


def curves_of(run: RunArtifacts) -> dict[int, dict[str, float]]:
    """All metrics of a recorded run by iteration, 0 being the evaluation of the warm start."""
    by_iteration = {0: evaluation_metrics("validation", run.start, run.start_at_horizon)}
    # While a critic warms up, an iteration names the policy of an earlier stage.
    earlier_references = set(run.prepared.values())
    for number, artifacts in enumerate(run.iterations, start=1):
        own: dict[Reference, IterationStage] = {}
        for name, reference in artifacts.items():
            stage = next((stage for stage in iteration_stages.STAGES if stage.name == name), None)
            if stage is not None and reference not in earlier_references:
                own.setdefault(reference, stage)
        earlier_references |= own.keys()
        by_iteration[number] = _metrics_of((stage, reference) for reference, stage in own.items())
    return by_iteration


def evaluation_metrics(split: str, full: Reference, at_horizon: Reference | None) -> dict[str, float]:
    """The metrics on a task set at the world's turn limit and, if given, at the training limit; success comes first."""
    at_limit = {} if at_horizon is None else metrics_in(f"{split}_at_horizon", at_horizon)
    return _success_first({**metrics_in(split, full), **at_limit}, split)


def metrics_in(group: str, artifact: Reference) -> dict[str, float]:
    """The metrics of one artifact, named as in a group."""
    stage = iteration_stages.recorded_groups().get(group)
    return _under(group, default_store().metrics(artifact)) if stage is None else _stage_metrics(stage, group, artifact)


def _stage_metrics(stage: IterationStage, group: str, artifact: Reference) -> dict[str, float]:
    """The recorded metrics of a stage's artifact, with group and unit; all of its groups if it has several."""
    metrics = {
        f"{name}_{stage.units[name]}" if name in stage.units else name: value
        for name, value in default_store().metrics(artifact).items()
        if name not in stage.left_out
    }
    return metrics if len(stage.groups) > 1 else _under(group, metrics)


def _measured(cost: MachineCost, clock: Mapping[str, float]) -> float | None:
    """A cost by an artifact's clock; None if it was not measured. Seconds that were not measured are 0."""
    if cost.metric.startswith("seconds/"):
        return clock.get(cost.clock, 0.0)
    if cost.clock not in clock or (cost.per and not clock.get(cost.per)):
        return None
    return clock[cost.clock] / clock[cost.per] if cost.per else clock[cost.clock]


def _under(group: str, metrics: Mapping[str, float]) -> dict[str, float]:
    return {f"{group}/{name}": value for name, value in metrics.items()}


def _success_first(metrics: Mapping[str, float], split: str) -> dict[str, float]:
    return dict(sorted(metrics.items(), key=lambda metric: metric[0] != f"{split}/sampled/success"))


def summary_metrics(report: ReportData) -> dict[str, float]:
    """The figures of an ablation's table, over all runs: of each row the first column with its interval, and greedy."""
    metrics = {}
    for row in (row for row in report.rows if row.kind != "went on"):
        name = mlflow_name(re.sub(r"[ /]+", "_", row.name))
        for mode, key in headline_columns(report).items():
            cell = row.cells.get(key)
            if cell is not None:
                metrics[f"table/{name}/{mode}"] = cell.value
                if cell.low is not None and cell.high is not None:
                    metrics |= {f"table/{name}/{mode}_low": cell.low, f"table/{name}/{mode}_high": cell.high}
    return metrics


def comparison_columns(report: ReportData) -> dict[str, list[Any]]:
    """The ablation's comparisons as a table, by column. MLflow shows the second by the first."""
    rows = [
        (judgement.measure, each)
        for judgement in (report.judgement, report.greedy)
        if judgement is not None
        for each in judgement.comparisons
    ]
    return {
        "comparison": [f"{each.first} − {each.second}, {measure}" for measure, each in rows],
        "result": [f"{with_bounds(each.difference, 2, sign=True)}, {verdict(each)}" for _, each in rows],
        **{name: [COMPARISON[name](each) for _, each in rows] for name in ("difference", "low", "high", "corrected p")},
    }
