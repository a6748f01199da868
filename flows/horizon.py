"""The horizon of a run: the turn limit of its rollouts and evaluations, iteration by iteration."""

from __future__ import annotations

from tasks.health.horizon import HorizonParameters, horizon, read_horizon
from turnwise.experiment import Experiment
from turnwise.store import Reference


def horizon_at(experiment: Experiment, before: Reference | None) -> int | None:
    """The turn limit after the curriculum state `before` (None: at the start); None if the world's own is as short."""
    limit = experiment.made_curriculum.first().limit if before is None else read_horizon(before).limit
    return limit if limit < experiment.made_world.limits.turns else None


def next_horizon(
    label: str, experiment: Experiment, number: int, sampled: Reference, before: Reference | None
) -> Reference:
    """Compute the curriculum's state after an iteration."""
    branching = experiment.rollout.scheme == "branching"
    parameters = HorizonParameters(
        curriculum=experiment.curriculum,
        turns=experiment.made_world.limits.turns,
        iteration=number,
        prompts=experiment.rollout.prompts if branching else None,
    )
    return horizon.named(label)(parameters, rollout=sampled, before=before)
