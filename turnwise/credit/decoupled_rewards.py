"""GDPO: every named reward is normalised within the group by itself, and the weighted sum of that over the batch.

    A_(i,k) = norm(R_k)_i                           over the group; R_k: reward k of the trajectory, not weighted
    S_i     = sum over k of w_k A_(i,k)             w_k: the weight of `rewards`
    A_i     = S_i / (deviation(S) + epsilon)        over the trajectories of the batch

Added up first, as in `grpo`, two rewards leave what is common in them: 1 and 0 count as 0 and 1 do. Normalised first,
each reward keeps its own ranking, and a weight says how much of a deviation of it counts, whatever its scale.

Paper: GDPO, group reward-decoupled normalisation (arXiv 2601.05242); verl's `gdpo` and TRL's
`normalize_then_sum`. The mean of S over the batch, which they subtract, is 0, since it is 0 in every group. Differs:
verl takes the batch's deviation over tokens, so that long replies weigh more; here it is over trajectories, as in the
paper and in TRL. Turn-level rewards are summed over the trajectory. A reward that is the same in the whole group gives
0 there, and so does a group of one, with a warning. epsilon is TRL's, 1e-4; verl has 1e-6.

Bias: a deviation per reward and group weighs groups and rewards by what was sampled, as in `grpo`; their sum is no
gradient of the weighted rewards. Rewards per token, such as a KL penalty, have no name and no place here.
"""

from __future__ import annotations

import numpy as np

from turnwise.config.quantities import NotNegative
from turnwise.credit.batch import CreditBatch
from turnwise.credit.group_relative import Deviation, normalise, scale
from turnwise.data.arrays import Ragged
from turnwise.errors import CreditError


def gdpo(batch: CreditBatch, *, deviation: Deviation = "unbiased", epsilon: NotNegative = 1e-4) -> Ragged:
    """One advantage per turn, the same at every turn of a trajectory. Needs `named_rewards` and `reward_weights`.

    `deviation` is that of each reward within its group; that of the batch is always the unbiased one. Raises
    CreditError for rewards per token.
    """
    if batch.token_rewards is not None:
        raise CreditError(
            "gdpo normalises each named reward, and has no place for token_rewards; put the KL penalty into the loss",
            "TW-no-token-rewards",
        )
    if not len(batch):
        return batch.turn_rewards
    assert batch.named_rewards is not None and batch.reward_weights is not None, "`estimate` asks for what is needed"
    rewards = np.array(batch.named_rewards.tolist())
    normalised = [batch.in_groups(column, lambda values: normalise(values, deviation, epsilon)) for column in rewards.T]
    sums = (np.array(batch.reward_weights.tolist()) * np.array(normalised).reshape(rewards.T.shape).T).sum(axis=1)
    return batch.on_every_turn(sums / scale(sums, "unbiased", epsilon))
