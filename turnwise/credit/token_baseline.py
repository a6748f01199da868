"""The optimal token baseline: at each step the return is compared with the group's, weighted by what was risked so far.

    w_j = |e_y - pi|^2 = 1 - 2 pi(y_j) + sum over the vocabulary of pi^2      at reply token j, with the reply token y_j
    W_t = sum over j <= t of w_j
    B_t = sum of G_t W_t / sum of W_t                                         over the group's trajectories that reach t
    A_t = G_t - B_t                                                           G_t: the return from step t

e_y - pi is the gradient of log pi(y) in the logits: W_t stands for the squared norm of the trajectory's gradient up to
t. Of all baselines that depend on the step alone, B_t has the least variance where that norm is the true one.

Paper: The Optimal Token Baseline (Li et al., arXiv 2602.07078), in verl `optimal_token_baseline` for one reply and
`tir_optimal_token_baseline` for several, whose steps are, as here, the reply tokens of all turns, without observations.
`steps: turn` is ours: steps are turns, W is that of a turn's last token, and all tokens of a turn have one advantage;
a token of turn 3 is then compared with turn 3 of the others, whatever number of tokens came before.

Differs from verl. By the equation a trajectory that is alone at a step, its group's longest, is compared with itself,
and gets 0 there. verl leaves its return as it is (`handle_zero_tail`), which rewards the longest one for its length
wherever returns are positive, in groups that all earn alike, too: `alone: return`. A group of one gets 0 and a warning;
verl leaves it its return. verl adds 1e-8 to the sum of weights, and can correct W by importance weights, which here
`optimization.correction` puts into the loss alone. w is computed at the sampling temperature, under the policy that
sampled.

Bias: the mean includes the trajectory itself, so that a step keeps 1 - W / sum of W of its gradient, which depends on
what was sampled and on how many reach the step: distorted, as `return-to-go` with `baseline: group` is. The default
`rewards: outcome` gives G_t the same value at every step; with `turn` it holds later rewards alone, and compares what
different trajectories have still to earn at the same number of tokens.
"""

from __future__ import annotations

import math
import warnings
from typing import Literal

import numpy as np

from turnwise.config.quantities import Share
from turnwise.credit.batch import CreditBatch
from turnwise.credit.group_relative import NO_BASELINE
from turnwise.credit.placement import Placement, on_tokens, placed
from turnwise.credit.reinforce import discounted_returns
from turnwise.data.arrays import Numbers, Ragged
from turnwise.data.tolerance import alike


def optimal_token_baseline(
    batch: CreditBatch,
    *,
    rewards: Placement = "outcome",
    gamma: Share = 1.0,
    steps: Literal["token", "turn"] = "token",
    alone: Literal["nothing", "return"] = "nothing",
) -> Ragged:
    """One advantage per reply token. Needs `reply_lengths` and `score_norms`. Token rewards count, too.

    `gamma` is per token. `alone` is what a trajectory gets at steps that no other of its group reaches.
    """
    assert batch.score_norms is not None, "`estimate` asks for what is needed"
    returns = discounted_returns(on_tokens(batch, placed(batch, rewards)), gamma)
    weights = Ragged(np.concatenate([[], *map(np.cumsum, batch.score_norms)]), returns.offsets)
    if steps == "turn":
        ends = batch.turn_tokens
        returns = Ragged(returns.values[ends[:-1]], batch.turn_rewards.offsets)
        weights = Ragged(weights.values[ends[1:] - 1], batch.turn_rewards.offsets)
    advantages = np.zeros(len(returns.values))
    for members in map(np.array, batch.members.values()):
        if len(members) == 1:
            warnings.warn(NO_BASELINE, stacklevel=2)
            continue
        for step in range(returns.lengths[members].max()):
            here = returns.offsets[members[returns.lengths[members] > step]] + step
            if len(here) > 1:
                advantages[here] = _against_weighted_mean(returns.values[here], weights.values[here])
            elif alone == "return":
                advantages[here] = returns.values[here]
    step_advantages = Ragged(advantages, returns.offsets)
    return step_advantages if steps == "token" else batch.on_reply_tokens(step_advantages)


def _against_weighted_mean(values: Numbers, weights: Numbers) -> Numbers:
    """The values minus their weighted mean; their plain mean where all weights are 0."""
    total = math.fsum(weights.tolist())
    if alike(values):
        return np.zeros(len(values))
    if total <= 0.0:
        return values - math.fsum(values.tolist()) / len(values)
    return values - math.fsum((values * weights).tolist()) / total
