"""Returns of turns: REINFORCE, ReMax, information gain and TRACE.

    turn-reinforce

    G_(i,t) = r_(i,t) + gamma G_(i,t+1)             steps are turns, however long their replies are
    A_(i,t) = norm(G)_(i,t)                         over all turns of the group (`group`) or of the batch (`batch`)
    A_(i,t) = G_(i,t)                               with `none`

    remax

    A_(i,t) = G_(i,t) - R(greedy)                   gamma 1; R: the whole return of a greedy episode of the same task

    information-gain

    P_(i,t) = exp(mean over the right answer's tokens of log pi(token | all before turn t, earlier tokens))
    r_(i,t) = c (P_(i,t+1) - P_(i,t)), t < K;   r_(i,K) = outcome_i        K: its last turn
    A_(i,t) = norm(r)_(i,t) + gamma A_(i,t+1)

    trace

    V_(i,t) = -log(offset - log P_(i,t))            P of the warm start; of a belief that comes near, V grows
    g_(i,t) = V_(i,t+1) - V_(i,t), t < K
    w_(i,t) = sum over s from t to min(t + H, K) - 1 of gamma^(s-t) g_(i,s), over the sum of these gamma^(s-t)
    A_(i,t) = norm(outcome)_i + c (w_(i,t) + (b gamma^(K-t) norm(outcome)_i if t + H >= K else 0)), t < K
    A_(i,K) = norm(outcome)_i

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

Information gain: IGPO (Wang et al., arXiv 2510.14967), the gain in probability, all turns of a group normalised
together (`pooled: joint`). Its release of February 2026 trains with gains in log-probability, as Delta-Belief-RL (arXiv
2602.12342) has them, normalised apart from the outcomes. P is asked for in one pass over the rollout, in which the
policy is given the answer in place of each reply: `turnwise.agent.hindsight`. Differs from the release: the deviation
is an option, `unbiased` by default, where the release divides by the population's; a gain of exactly 0 is a turn like
any other, where the release finds turns by rewards that are not 0. The last turn has no gain, since nothing follows it.

Bias: gains add up to P_K - P_t, so a policy is also paid for states in which it would give the right answer and gives
another. Means are over turns at any place, the turn itself included: as with `per-index` of `mt-grpo`, an episode that
goes on pays a mean gain for each further turn, and one that stops does not. It is therefore no rule that compares
within groups here, either: trajectories that are all alike have advantages.

TRACE (Tao et al., "Turn-level Reward Assignment via Credit Estimation for Long-Horizon Agents", arXiv 2607.13988,
algorithm 1; other papers of this name allocate rollouts or attack models): what a frozen copy of the first policy still
lacks of the right answer, -log P, counts by its ratio, so that half of what is lacking is worth the same anywhere. The
paper divides the first state's lack by each, which cancels in g. H 3, gamma 0.8, b 2, c 0.2, offset 0.1 and the
population's deviation are the paper's; gains are not compared within the group. Differs: the turn that answers has the
outcome alone, where the paper weighs its tokens in a way that it does not define.

Bias: w is no return, but what the frozen policy comes to believe within H turns, and is compared with nothing. Gains
add up to the last belief's value minus the first's, so that needless turns are paid nothing. The outcome has the bias
of `grpo`, and counts more in the H turns before the last.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from turnwise.config.quantities import Count, NotNegative, Number, Positive, Share
from turnwise.credit.batch import CreditBatch, Rewards
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
    pools = {"group": list(batch.members.values()), "batch": [list(range(len(batch)))], "none": []}[over]
    for members in pools:
        turns = returns.places(members)
        returns.values[turns] = standardised(returns.values[turns], deviation or "unbiased", epsilon)
    return returns


def information_gain(
    batch: CreditBatch,
    *,
    gain: Literal["probability", "log-probability"] = "probability",
    coefficient: Number = 1.0,
    rewards: Rewards = "outcome",
    pooled: Literal["joint", "apart"] = "joint",
    gamma: Share = 1.0,
    deviation: Deviation = "unbiased",
    epsilon: NotNegative = 1e-6,
) -> Ragged:
    """One advantage per turn. Needs `answer_scores`. Token rewards count with the outcome.

    `pooled`: whether gains and outcomes of a group are normalised together, or each among their own.
    """
    assert batch.answer_scores is not None, "`estimate` asks for what is needed"
    scores = batch.answer_scores.values if gain == "log-probability" else np.exp(batch.answer_scores.values)
    turn_rewards = Ragged(coefficient * np.diff(scores, append=0.0), batch.turn_rewards.offsets)
    turn_rewards.values[batch.last_turns] = batch.totals(rewards)
    is_last = np.isin(np.arange(len(scores)), batch.last_turns)
    for members in batch.members.values():
        turns = turn_rewards.places(members)
        for pool in [turns] if pooled == "joint" else [turns[is_last[turns]], turns[~is_last[turns]]]:
            turn_rewards.values[pool] = standardised(turn_rewards.values[pool], deviation, epsilon)
    return discounted_returns(turn_rewards, gamma)


def trace(
    batch: CreditBatch,
    *,
    horizon: Count = 3,
    gamma: Share = 0.8,
    terminal: NotNegative = 2.0,
    coefficient: Number = 0.2,
    offset: Positive = 0.1,
    rewards: Rewards = "outcome",
    deviation: Deviation = "population",
    epsilon: NotNegative = 1e-6,
) -> Ragged:
    """One advantage per turn. Needs `start_answer_scores`. Token rewards count with the outcome.

    `horizon` is H, in turns, `terminal` b, in outcomes, `coefficient` c, in outcomes per nat's ratio, `offset` in nats.
    """
    assert batch.start_answer_scores is not None, "`estimate` asks for what is needed"
    outcomes = batch.in_groups(batch.totals(rewards), lambda values: standardised(values, deviation, epsilon))
    advantages = batch.on_every_turn(outcomes)
    for outcome, row, scores in zip(outcomes, advantages, batch.start_answer_scores, strict=True):
        gains = -np.diff(np.log(offset - scores))
        for turn in range(len(gains)):
            window = gains[turn : turn + horizon]
            discounts = gamma ** np.arange(len(window))
            reaches_end = turn + horizon >= len(gains)
            anchor = terminal * gamma ** (len(gains) - turn) * outcome if reaches_end else 0.0
            row[turn] += coefficient * (window @ discounts / discounts.sum() + anchor)
    return advantages


def remax(batch: CreditBatch, *, rewards: Placement = "turn") -> Ragged:
    """One advantage per turn. Needs `greedy_rewards`. Token rewards count for the episode, not for the greedy one."""
    assert batch.greedy_rewards is not None, "`estimate` asks for what is needed"
    returns = discounted_returns(on_turns(batch, rewards), 1.0)
    weights = np.array([0.0, 1.0] if rewards == "outcome" else [1.0, 1.0])
    greedy = np.array([row @ weights for row in batch.greedy_rewards])
    return Ragged(returns.values - np.repeat(greedy, returns.lengths), returns.offsets)
