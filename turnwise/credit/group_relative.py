"""GRPO: every reply token of a trajectory gets its reward, normalised within the group.

    outcome (GRPO-OR):  A_i = norm(outcome)_i
    merged  (GRPO-MR):  A_i = norm(sum of turn rewards + outcome)_i

Paper: DeepSeekMath (arXiv 2402.03300) for the rule; MT-GRPO (arXiv 2505.11821, section 4) for the two rewards, which it
calls GRPO-OR and GRPO-MR; with the whole trajectory as one sequence this is RAGEN's StarPO (arXiv 2504.20073).
Differs from the paper: an all-equal group gets exactly 0; a group of one gets 0 and a warning instead of NaN.
"""

from __future__ import annotations

import math
from typing import Literal, get_args

from turnwise.credit.batch import CreditBatch
from turnwise.credit.normalisation import Deviation, normalise, require_deviation
from turnwise.errors import CreditError

Rewards = Literal["outcome", "merged"]


def grpo(
    batch: CreditBatch, *, rewards: Rewards = "outcome", deviation: Deviation = "unbiased", epsilon: float = 1e-4
) -> list[list[float]]:
    """One advantage per turn, the same at every turn of a trajectory. Raises CreditError for an unknown option."""
    require_deviation(deviation, epsilon)
    if rewards not in get_args(Rewards):
        raise CreditError(f"rewards must be one of {', '.join(get_args(Rewards))}; found {rewards!r}")
    advantages: list[list[float]] = [[] for _ in range(len(batch))]
    for members in batch.members.values():
        values = [_reward(batch, index, rewards) for index in members]
        for index, advantage in zip(members, normalise(values, deviation, epsilon), strict=True):
            advantages[index] = [advantage] * batch.turns[index]
    return advantages


def _reward(batch: CreditBatch, index: int, rewards: Rewards) -> float:
    return batch.outcome[index] + (math.fsum(batch.turn_rewards[index]) if rewards == "merged" else 0.0)
