"""GRPO and RLOO: every turn of a trajectory gets the trajectory's reward, relative to those of its group.

    grpo   A_i = norm(R)_i                              (R_i - mean) / (deviation + epsilon)
    rloo   A_i = R_i - mean of the others' R            = G / (G - 1) (R_i - mean)

    outcome (GRPO-OR):  R_i = outcome_i
    merged  (GRPO-MR):  R_i = sum of turn rewards_i + outcome_i

Papers: DeepSeekMath (arXiv 2402.03300) for GRPO; Ahmadian et al. (arXiv 2402.14740) for RLOO, as AgentGym-RL (arXiv
2509.08755) uses it; MT-GRPO (arXiv 2505.11821, section 4) for the two rewards, which it calls GRPO-OR and GRPO-MR. With
the whole trajectory as one sequence `grpo` is RAGEN's StarPO (arXiv 2504.20073), and with `deviation: none` Dr.GRPO's
advantage (arXiv 2503.20783).

Bias: `rloo` is unbiased for any number of turns. `grpo` with `deviation: none` is `rloo` times (G - 1) / G; dividing by
a deviation gives groups different weights. In both, a turn's advantage includes rewards from before the turn, which
adds variance.

Differs from the papers: a zero-variance group gets exactly 0. A group of one gets 0 and a warning, not NaN: the size of
a group does not depend on the policy, so leaving the group out adds no bias.
"""

from __future__ import annotations

import warnings

from turnwise.config.quantities import NotNegative
from turnwise.credit.batch import CreditBatch
from turnwise.credit.normalisation import NO_BASELINE, Deviation, against_others, normalise
from turnwise.credit.placement import Rewards, totals
from turnwise.data.arrays import Ragged


def grpo(
    batch: CreditBatch, *, rewards: Rewards = "outcome", deviation: Deviation = "unbiased", epsilon: NotNegative = 1e-4
) -> Ragged:
    """One advantage per turn, the same at every turn of a trajectory. Token rewards count, too."""
    compared = batch.in_groups(totals(batch, rewards), lambda values: normalise(values, deviation, epsilon))
    return batch.on_every_turn(compared)


def rloo(batch: CreditBatch, *, rewards: Rewards = "outcome") -> Ragged:
    """One advantage per turn, the same at every turn of a trajectory. Token rewards count, too."""
    for members in batch.members.values():
        if len(members) == 1:
            warnings.warn(NO_BASELINE, stacklevel=2)
    return batch.on_every_turn(batch.in_groups(totals(batch, rewards), against_others))
