"""REINFORCE++: discounted returns per reply token, whitened over the batch. No critic.

    R_t = r_t + gamma R_(t+1)                  steps are reply tokens, so a return passes through observations
    A   = whiten(R)                            over the trained reply tokens: (R - mean) / (deviation + epsilon)

    reinforce++            r: the rewards, placed as `rewards` says
    reinforce++-baseline   r: score - mean score of the group, on the last reply token

Paper: REINFORCE++ (Hu, arXiv 2501.03262), as AgentGym-RL (arXiv 2509.08755) uses it; the baseline form is OpenRLHF's
`reinforce_baseline`. Differs from the paper: turn rewards may be paid at their turns (`rewards: turn`), so that returns
hold only later rewards; `merged` is the paper's. A group of one has no baseline: it gets 0 and a warning. Whitening
adds epsilon, 1e-8, to the deviation, not to the variance, and divides by the unbiased deviation, as verl and SkyRL do;
OpenRLHF's is the population's, which makes its advantages of n tokens larger by the factor sqrt(n / (n - 1)).

Bias: the returns of `reinforce++` are unbiased, but a task that pays more than others raises the advantages of all its
tokens, which adds variance. With gamma below 1 a reward counts less the more tokens lie between it and the step. The
group's mean includes the trajectory itself, which scales by (G - 1) / G. Whitening divides by one number for the whole
batch.
"""

from __future__ import annotations

import numpy as np

from turnwise.config.quantities import NotNegative, Share
from turnwise.credit.batch import CreditBatch, Rewards
from turnwise.credit.group_relative import normalise, standardised
from turnwise.credit.placement import Placement, on_tokens, placed
from turnwise.data.arrays import Ragged


def reinforce_plus_plus(
    batch: CreditBatch,
    *,
    gamma: Share = 1.0,
    rewards: Placement = "turn",
    whiten: bool = True,
    epsilon: NotNegative = 1e-8,
) -> Ragged:
    """One advantage per reply token. Needs `reply_lengths`. Raises CreditError without them.

    Whitened by default over the trained reply tokens of the batch; `whiten=False` turns it off.
    """
    return _advantages(batch, placed(batch, rewards), gamma, whiten, epsilon)


def reinforce_plus_plus_baseline(
    batch: CreditBatch,
    *,
    gamma: Share = 1.0,
    rewards: Rewards = "outcome",
    whiten: bool = True,
    epsilon: NotNegative = 1e-8,
) -> Ragged:
    """One advantage per reply token. Needs `reply_lengths`. Rewards per token are not part of the group's mean.

    Whitened as in `reinforce_plus_plus`. Raises CreditError as it does.
    """
    turn_rewards = np.zeros(len(batch.turn_rewards.values))
    outcomes = batch.in_groups(batch.scores(rewards), lambda values: normalise(values, "none", 0.0))
    turn_rewards[batch.last_turns] = outcomes
    return _advantages(batch, Ragged(turn_rewards, batch.turn_rewards.offsets), gamma, whiten, epsilon)


def _advantages(batch: CreditBatch, turn_rewards: Ragged, gamma: float, whiten: bool, epsilon: float) -> Ragged:
    returns = discounted_returns(on_tokens(batch, turn_rewards), gamma)
    return whitened(returns, batch.trained_tokens, epsilon) if whiten else returns


def discounted_returns(rewards: Ragged, gamma: float) -> Ragged:
    """The discounted return from each step of each row: R_t = r_t + gamma R_(t+1)."""
    returns = np.zeros(len(rewards.values))
    following = np.zeros(len(rewards))
    for rows, steps in rewards.backward():
        following[rows] = rewards.values[steps] + gamma * following[rows]
        returns[steps] = following[rows]
    return Ragged(returns, rewards.offsets)


def whitened(values: Ragged, trained: Ragged, epsilon: float) -> Ragged:
    """`whiten(x)`, one row per trajectory: by mean and unbiased deviation over the entries flagged in `trained`.

    The other entries are left out of the statistics and get 0.
    """
    whitened = np.zeros(len(values.values))
    whitened[trained.values] = standardised(values.values[trained.values], "unbiased", epsilon)
    return Ragged(whitened, values.offsets)
