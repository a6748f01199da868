"""Advantages of a rollout as arrays, and the metrics of a batch with them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from turnwise.credit.batch import CreditBatch
from turnwise.data.arrays import Integers, Ragged
from turnwise.data.tolerance import alike
from turnwise.data.trajectory import Trajectory


@dataclass(frozen=True)
class Advantages:
    """Advantages as arrays, with one row per trajectory that is trained on."""

    trajectories: Integers
    """The index of each of these trajectories in the rollout, [trajectories]."""
    turns: Ragged
    """One advantage per turn; where tokens have advantages, the mean over the turn's reply tokens."""
    tokens: Ragged | None = None
    """One advantage per reply token, for a token-level estimator or if thoughts have credit of their own; else None."""
    value_targets: Ragged | None = None
    """The critic's regression target per reply token; None for an estimator without a critic."""

    @property
    def has_signal(self) -> bool:
        """Whether any token that is trained has an advantage other than 0. Those of a turn's tokens may cancel."""
        return bool((self.turns if self.tokens is None else self.tokens).values.any())

    def by_trajectory(self) -> dict[int, TrajectoryAdvantages]:
        """The advantages of each trajectory as lists, by its index in the rollout."""
        turns = self.turns.tolist()
        tokens, targets = (
            [None] * len(turns) if rows is None else rows.tolist() for rows in (self.tokens, self.value_targets)
        )
        rows = zip(turns, tokens, targets, strict=True)
        return {index: TrajectoryAdvantages(*row) for index, row in zip(self.trajectories.tolist(), rows, strict=True)}


@dataclass(frozen=True)
class TrajectoryAdvantages:
    """The advantages of one trajectory, to be shown; see `Advantages`."""

    turns: list[float]
    tokens: list[float] | None
    value_targets: list[float] | None

    def by_turn(self, trajectory: Trajectory) -> list[list[float]] | None:
        """The advantages of reply tokens grouped by turn; None if `tokens` is."""
        if self.tokens is None:
            return None
        return Ragged.with_lengths(
            np.array(self.tokens), [len(turn.reply_tokens) for turn in trajectory.turns]
        ).tolist()


def turn_means(batch: CreditBatch, tokens: Ragged) -> Ragged:
    """The mean over the reply tokens of each turn: one row per trajectory."""
    of_turns = Ragged(tokens.values, batch.turn_tokens).tolist()
    return Ragged(np.array([math.fsum(row) / len(row) for row in of_turns]), batch.turn_rewards.offsets)


def account(batch: CreditBatch, advantages: Ragged, sampled: int) -> dict[str, float]:
    """The metrics of a batch with these advantages per turn, out of `sampled` trajectories.

    `left_out` counts trajectories that are not in the batch, `zero_variance_groups` those whose advantages
    are all 0. The others are about rewards (turn rewards and outcome added up) and about advantages of turns.
    """
    if not len(batch):
        return {"groups": 0, "zero_variance_groups": 0, "left_out": sampled}
    rows = zip(batch.turn_rewards.tolist(), batch.outcome, strict=True)
    rewards = [math.fsum(turns) + outcome for turns, outcome in rows]
    groups = batch.members.values()
    spread = [_deviation([rewards[index] for index in members]) for members in groups]
    flat = advantages.values.tolist()
    silent = [not row.any() for row in advantages]
    return {
        "groups": len(groups),
        "zero_variance_groups": sum(all(silent[index] for index in members) for members in groups),
        "left_out": sampled - len(batch),
        "reward": math.fsum(rewards) / len(rewards),
        "reward_deviation_within_groups": math.fsum(spread) / len(spread),
        "advantage_mean": math.fsum(flat) / len(flat),
        "advantage_deviation": _deviation(flat),
        "advantage_maximum": max(abs(value) for value in flat),
    }


def _deviation(values: list[float]) -> float:
    """The population standard deviation; used in metrics only."""
    if alike(values):
        return 0.0
    mean = math.fsum(values) / len(values)
    return math.sqrt(math.fsum((value - mean) ** 2 for value in values) / len(values))
