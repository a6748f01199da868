"""REINFORCE and ReMax on turns: each turn's return, compared with other turns, or with what a greedy episode earns.

    turn-reinforce

    G_(i,t) = r_(i,t) + gamma G_(i,t+1)             steps are turns, however long their replies are
    A_(i,t) = norm(G)_(i,t)                         over all turns of the group (`group`) or of the batch (`batch`)
    A_(i,t) = G_(i,t)                               with `none`

    remax

    A_(i,t) = G_(i,t) - R(greedy)                   gamma 1; R: the whole return of a greedy episode of the same task

A discount per turn pays for short episodes, and not for short replies as one per token does (`reinforce++`).

`turn-reinforce` is from ROLL's agentic pipeline: its `step_reinforce` is `over: group`, its turn discount with
`reinforce` is `over: none`. No paper. Where the deviation is below 1e-6, ROLL gives 0; here values that are alike do.
epsilon is ROLL's, 1e-6.

Bias: with `none` and gamma 1 unbiased, with the variance of a return that is compared with nothing. With `group` and
`batch` the mean includes the turn itself, and mixes turns that are early with turns that are late: a late turn of an
episode with a cost per turn has the better return whatever was done, so that trajectories which are all alike have
advantages. It is therefore no rule that compares within groups here, and takes groups of one. gamma below 1 counts what
comes later less.

ReMax: Li et al. (arXiv 2310.10505), in verl `remax`, whose steps are tokens: with a turn's reward at the end of its
reply all tokens of a turn have the same return. The greedy episode is played once per task and iteration by the policy
that samples, in the world of the group's first episode. Differs: a task whose greedy episode was lost is left out;
`rewards` says which rewards count on both sides. Unbiased: what is greedy does not depend on what was sampled, and is
the same baseline for all actions. A late turn, which can only earn what is left, is compared with the whole return.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from turnwise.config.quantities import NotNegative, Share
from turnwise.credit.batch import CreditBatch
from turnwise.credit.group_relative import Deviation, standardised
from turnwise.credit.placement import Placement, on_turns
from turnwise.credit.reinforce import discounted_returns
from turnwise.data.arrays import Ragged


def turn_reinforce(
    batch: CreditBatch,
    *,
    gamma: Share = 1.0,
    rewards: Placement = "turn",
    over: Literal["group", "batch", "none"] = "group",
    deviation: Deviation | None = None,
    epsilon: NotNegative = 1e-6,
) -> Ragged:
    """One advantage per turn. Rewards per token are added to their turn's.

    `deviation` (default: `unbiased`) belongs to `group` and `batch`.
    """
    returns = discounted_returns(on_turns(batch, rewards), gamma)
    compared = {"group": list(batch.members.values()), "batch": [list(range(len(batch)))], "none": []}[over]
    for members in compared:
        turns = returns.places(members)
        returns.values[turns] = standardised(returns.values[turns], deviation or "unbiased", epsilon)
    return returns


def remax(batch: CreditBatch, *, rewards: Placement = "turn") -> Ragged:
    """One advantage per turn. Needs `greedy_rewards`. Token rewards count for the episode, not for the greedy one."""
    assert batch.greedy_rewards is not None, "`estimate` asks for what is needed"
    returns = discounted_returns(on_turns(batch, rewards), 1.0)
    counted = np.array([0.0, 1.0] if rewards == "outcome" else [1.0, 1.0])
    greedy = np.array([row @ counted for row in batch.greedy_rewards])
    return Ragged(returns.values - np.repeat(greedy, returns.lengths), returns.offsets)
