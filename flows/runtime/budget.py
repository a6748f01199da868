"""Refuse a budget at which no verdict can be given, before anything is computed."""

from __future__ import annotations

from collections.abc import Sequence

from flows.runtime.disk import PlannedRun, planned_run
from turnwise.errors import ConfigurationError
from turnwise.experiment import Experiment


def require_budget(experiment: Experiment, runs: Sequence[PlannedRun] | None = None) -> None:
    """Refuse `ablation.budget` where a variant cannot spend as much by its last evaluation, even at most.

    `runs` are those of the variants where they are known. Raises ConfigurationError.
    """
    budget = experiment.ablation.budget
    if budget is None:
        return
    last = experiment.optimization.iterations
    for run in runs or [planned_run(experiment, name) for name in experiment.ablation.variants]:
        most = {
            "iterations": last,
            "sampled_tokens": run.reply_tokens,
            "trained_tokens": run.reply_tokens,
            "environment_steps": run.turns,
        }.get(budget.axis)
        if most is not None and most < budget.amount:
            raise ConfigurationError(
                f"ablation.budget must be within what every run can spend; {run.variant} makes at most {most:,} "
                f"{budget.axis.replace('_', ' ')} in {last} iterations; found {budget.heading}: lower it, or raise "
                "optimization.iterations"
            )
