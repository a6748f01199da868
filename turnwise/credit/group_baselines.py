"""OPO, GPG, MaxRL and pass@k: the trajectory's reward within its group, by another baseline or on another scale.

    opo          A_i = R_i - sum of l_j R_j / sum of l_j                  l_j: reply tokens of trajectory j
    gpg          A_i = (N / n) (R_i - mean(R))                            n of the batch's N trajectories are counted
    maxrl        A_i = (R_i - mean(R)) / mean(R)                          0 where mean(R) <= 0
    grpo-passk   A_i = (largest R - next largest R) / (deviation(R) + epsilon) for the best trajectory, 0 for the others

R is `outcome` or `merged`, as in `group_relative`. Papers: OPO, on-policy RL with optimal reward baseline (arXiv
2505.23585); GPG, group policy gradient (arXiv 2504.02546); MaxRL, maximum likelihood reinforcement learning (arXiv
2602.02710); pass@k, Tang et al. (arXiv 2503.19595), as verl has it.

Bias. `opo` has the least variance of all constants where the square of a trajectory's score grows with its length; its
mean includes the trajectory itself, which distorts as that of `grpo` scales. `gpg` is `grpo` with `deviation: none`
and a longer step, whose length varies with what was sampled. The other two follow another objective than the expected
reward, which `test_group_baselines.py` enumerates: `maxrl`, with rewards of 0 and 1, the sum over k < G of pass@k / k,
whose gradient is that of log(success) as G grows; `grpo-passk` with `deviation: none` the expected best of G, times
1 / G.

Differs from the papers and their code: a group of one gets 0 and a warning, where verl gives it its own reward. `gpg`
counts, as in the paper, the trajectories of groups that have any spread; `counted: rewarded` is what verl counts, those
whose reward is not 0. SkyRL's MaxRL adds an epsilon to the mean; prime-rl and this do not. verl's OPO and GPG divide by
nothing, and its pass@k has epsilon 1e-6, as here.
"""

from __future__ import annotations

import math
import warnings
from typing import Literal

import numpy as np

from turnwise.config.quantities import NotNegative
from turnwise.credit.batch import CreditBatch, Rewards
from turnwise.credit.group_relative import NO_BASELINE, Deviation, normalise, scale
from turnwise.data.arrays import Numbers, Ragged
from turnwise.data.tolerance import RELATIVE_TOLERANCE, alike


def opo(batch: CreditBatch, *, rewards: Rewards = "outcome") -> Ragged:
    """One advantage per turn, the same at every turn of a trajectory. Needs `reply_lengths`. Token rewards count."""
    totals, ends = batch.totals(rewards), batch.turn_tokens
    lengths = np.diff(ends[batch.turn_rewards.offsets])
    advantages = np.zeros(len(batch))
    for members in batch.members.values():
        group_totals = totals[members]
        if len(members) == 1:
            warnings.warn(NO_BASELINE, stacklevel=2)
        elif not alike(group_totals):
            weighted = math.fsum((lengths[members] * group_totals).tolist())
            advantages[members] = group_totals - weighted / int(lengths[members].sum())
    return batch.on_every_turn(advantages)


def gpg(
    batch: CreditBatch, *, rewards: Rewards = "outcome", counted: Literal["spread", "rewarded"] = "spread"
) -> Ragged:
    """One advantage per turn, the same at every turn of a trajectory. Token rewards count, too.

    `counted` are the trajectories of groups with spread in their rewards, or those with a reward other than 0.
    """
    totals = batch.totals(rewards)
    differences = batch.in_groups(totals, lambda values: normalise(values, "none", 0.0))
    spread = sum(len(members) for members in batch.members.values() if not alike(totals[members]))
    number = spread if counted == "spread" else np.count_nonzero(totals)
    return batch.on_every_turn(differences * (len(batch) / max(1, number)))


def maxrl(batch: CreditBatch, *, rewards: Rewards = "outcome") -> Ragged:
    """One advantage per turn, the same at every turn of a trajectory. Token rewards count, too.

    Meant for rewards from 0 up: a group whose mean is not above 0 gets 0.
    """

    def compare(values: Numbers) -> Numbers:
        mean = math.fsum(values.tolist()) / len(values)
        # Rewards that cancel leave a rounding as their mean, which nothing may be divided by.
        is_positive = mean > RELATIVE_TOLERANCE * float(np.abs(values).max())
        return normalise(values, "none", 0.0) / mean if is_positive else np.zeros(len(values))

    return batch.on_every_turn(batch.in_groups(batch.totals(rewards), compare))


def grpo_passk(
    batch: CreditBatch, *, rewards: Rewards = "outcome", deviation: Deviation = "unbiased", epsilon: NotNegative = 1e-6
) -> Ragged:
    """One advantage per turn, the same at every turn of a trajectory. Token rewards count, too.

    Two trajectories that are both the best of their group get 0, as each would be missed by nobody.
    """

    def compare(values: Numbers) -> Numbers:
        advantages = np.zeros(len(values))
        if len(values) == 1:
            warnings.warn(NO_BASELINE, stacklevel=2)
            return advantages
        *_, second, best = np.argsort(values, kind="stable").tolist()
        if not alike(values[[second, best]]):
            advantages[best] = (values[best] - values[second]) / scale(values, deviation, epsilon)
        return advantages

    return batch.on_every_turn(batch.in_groups(batch.totals(rewards), compare))
