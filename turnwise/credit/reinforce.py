"""REINFORCE++: discounted returns per reply token, whitened over the batch. No critic.

    R_t = r_t + gamma R_(t+1)                  steps are reply tokens, so a return passes through observations
    A   = whiten(R)                            over the trained reply tokens of the batch

    reinforce++            r: the rewards, placed as `rewards` says
    reinforce++-baseline   r: score - mean score of the group, on the last reply token

Paper: REINFORCE++ (Hu, arXiv 2501.03262), as AgentGym-RL (arXiv 2509.08755) uses it; the baseline form is OpenRLHF's
`reinforce_baseline`. Differs from the paper: turn rewards may be paid at their turns (`rewards: turn`), so that returns
hold only later rewards; `merged` is the paper's. A group of one has no baseline: it gets 0 and a warning. Whitening
adds epsilon, 1e-8, to the deviation, not to the variance.

Bias: the returns of `reinforce++` are unbiased, but a task that pays more than others raises the advantages of all its
tokens, which adds variance. With gamma below 1 a reward counts less the more tokens lie between it and the step. The
group's mean includes the trajectory itself, which scales by (G - 1) / G. Whitening divides by one number for the whole
batch.
"""

from __future__ import annotations

from collections.abc import Sequence

from turnwise.config.quantities import NotNegative, Share
from turnwise.credit.batch import CreditBatch
from turnwise.credit.normalisation import normalise
from turnwise.credit.normalisation import whiten as whitened
from turnwise.credit.placement import Placement, Rewards, on_tokens, placed, score


def reinforce_plus_plus(
    batch: CreditBatch,
    *,
    gamma: Share = 1.0,
    rewards: Placement = "turn",
    whiten: bool = True,
    epsilon: NotNegative = 1e-8,
) -> list[list[float]]:
    """One advantage per reply token. Needs `reply_lengths`. Raises CreditError without them.

    Whitened by default over the trained reply tokens of the batch; `whiten=False` turns it off.
    """
    of_turns = [placed(batch, index, rewards) for index in range(len(batch))]
    return _advantages(batch, of_turns, gamma, whiten, epsilon)


def reinforce_plus_plus_baseline(
    batch: CreditBatch,
    *,
    gamma: Share = 1.0,
    rewards: Rewards = "outcome",
    whiten: bool = True,
    epsilon: NotNegative = 1e-8,
) -> list[list[float]]:
    """One advantage per reply token. Needs `reply_lengths`. Rewards per token are not part of the group's mean.

    Whitened as in `reinforce_plus_plus`. Raises CreditError as it does.
    """
    of_turns = [[0.0] * turns for turns in batch.turns]
    for members in batch.members.values():
        scores = normalise([score(batch, index, rewards) for index in members], "none", 0.0)
        for index, difference in zip(members, scores, strict=True):
            of_turns[index][-1] = difference
    return _advantages(batch, of_turns, gamma, whiten, epsilon)


def _advantages(
    batch: CreditBatch, of_turns: Sequence[Sequence[float]], gamma: float, whiten: bool, epsilon: float
) -> list[list[float]]:
    returns = [discounted_returns(on_tokens(batch, index, turns), gamma) for index, turns in enumerate(of_turns)]
    return whitened(returns, batch.trained_tokens, epsilon) if whiten else returns


def discounted_returns(rewards: Sequence[float], gamma: float) -> list[float]:
    """The discounted return from each step: R_t = r_t + gamma R_(t+1)."""
    returns = [0.0] * len(rewards)
    following = 0.0
    for step in reversed(range(len(rewards))):
        following = rewards[step] + gamma * following
        returns[step] = following
    return returns
