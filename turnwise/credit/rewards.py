"""The rewards of trajectories, weighted as configured, and the states in which they were earned."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from turnwise.config.schema import RewardSection
from turnwise.data.trajectory import Trajectory, TurnKind


def anchors(trajectories: Sequence[Trajectory]) -> list[list[str | None]] | None:
    """The anchor state before each turn, [trajectory][turn]; None where any acting turn lacks one."""
    acting = (turn for trajectory in trajectories for turn in trajectory.turns if turn.kind is TurnKind.ACT)
    if any(turn.state is None for turn in acting):
        return None
    return [[turn.state for turn in trajectory.turns] for trajectory in trajectories]


def weighted_rewards(trajectory: Trajectory, rewards: Mapping[str, RewardSection]) -> tuple[list[float], float]:
    """The weighted turn-level reward of each turn, and the weighted outcome reward of the episode.

    The configuration decides which named rewards are of which level, and their weights. With several attempts,
    turn-level rewards stay with their turns in every attempt; the outcome is that of the last attempt.
    """
    per_turn = [
        sum(
            section.weight * turn.rewards.get(name, 0.0) for name, section in rewards.items() if section.level == "turn"
        )
        for turn in trajectory.turns
    ]
    outcome = sum(
        section.weight * sum(turn.rewards.get(name, 0.0) for turn in trajectory.last_attempt)
        for name, section in rewards.items()
        if section.level == "outcome"
    )
    return per_turn, outcome


def weighted_return(trajectory: Trajectory, rewards: Mapping[str, RewardSection]) -> float:
    """The sum of all weighted rewards of a trajectory, turn-level and outcome."""
    per_turn, outcome = weighted_rewards(trajectory, rewards)
    return math.fsum(per_turn) + outcome
