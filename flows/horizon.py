"""The horizon of a run: which limit on turns its rollouts and evaluations are given, iteration by iteration."""

from __future__ import annotations

from tasks.health.horizon import HorizonParameters, horizon, read_horizon
from turnwise.experiment import Experiment
from turnwise.store import Reference


def horizon_at(experiment: Experiment, before: Reference | None) -> int | None:
    """The limit on turns after the state `before` (None: at the start), or None where the world's own is as short."""
    limit = experiment.make_curriculum().first().limit if before is None else read_horizon(before).limit
    return limit if limit < experiment.make_world().limits.turns else None


def next_horizon(
    label: str, experiment: Experiment, number: int, sampled: Reference, before: Reference | None
) -> Reference:
    """The curriculum's state after an iteration."""
    branching = experiment.rollout.scheme == "branching"
    parameters = HorizonParameters(
        curriculum=experiment.curriculum,
        turns=experiment.make_world().limits.turns,
        iteration=number,
        prompts=experiment.rollout.prompts if branching else None,
    )
    return horizon.named(label)(parameters, rollout=sampled, before=before)
