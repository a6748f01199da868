"""Distillation by sampled tokens: what a teacher makes likelier than the policy does.

    d_t = log pi(y_t | x, hindsight, y_<t) - log pi(y_t | x, y_<t)      at reply token t: the policy, in hindsight
    d_t = log q(y_t | x, y_<t) - log pi(y_t | x, y_<t)                  another policy q, with `teacher`
    A_t = a (sum over s >= t of gamma^(s-t) d_s) + b norm(R)_i

    hindsight: another episode of the group that solved the task; where there is none, how this one ended

SDPO (Hübotter et al., arXiv 2601.20802) in its sampled form, gamma 0 and b 0, with the loss `reinforce`; in TRL
`distillation_mode: sampled_token`. With a `teacher`, which reads the episode as the policy did, it is on-policy
distillation by the reverse KL of each token that the policy has sampled (GKD, arXiv 2306.13649). OPSD shows the right
answer in place of an episode. Here turns are as they were played, and the hindsight stands in the first message:
`turnwise.agent.hindsight`. Differs: the hindsight is the actions of the other episode, without its thoughts; the
teacher is the policy that sampled, where SDPO has a moving average of policies; b adds the outcome, compared within the
group as in `grpo`. The form over the whole vocabulary, which is a loss, is `turnwise.policy.learner.distillation`. A
reply without hindsight (the only success of its group) has d = 0.

Bias: with gamma 1 and b 0 the gradient is exactly that of minus the divergence KL(pi || pi with hindsight) of whole
episodes, hindsight and teacher held fixed; nobody says that less of it is more reward. With gamma 0 each token answers
for itself alone, and not for where it leads: another gradient, with far less variance. Hindsight that is this episode's
own end depends on what was sampled, so that the teacher is a different one for each episode. A teacher pi exp(Q / b)
over its sum, Q being the true value of a token, makes d_t the advantage over b and the gradient that of the reward; no
real one is known to.
"""

from __future__ import annotations

import numpy as np

from turnwise.config.quantities import NotNegative, Number, Share
from turnwise.credit.batch import CreditBatch, Rewards
from turnwise.credit.group_relative import Deviation, normalise
from turnwise.credit.reinforce import discounted_returns
from turnwise.data.arrays import Ragged


def self_distillation(
    batch: CreditBatch,
    *,
    teacher: str | None = None,
    coefficient: Number = 1.0,
    outcome_coefficient: Number = 0.0,
    gamma: Share = 0.0,
    rewards: Rewards = "outcome",
    deviation: Deviation = "unbiased",
    epsilon: NotNegative = 1e-4,
) -> Ragged:
    """One advantage per reply token. Needs `reply_lengths` and `hindsight`. Token rewards count with the outcome.

    `teacher` names the model that has computed `hindsight`, as `policy.model` does, with the policy's tokens; None: the
    policy itself, which is shown what came of the episode.
    """
    assert batch.hindsight is not None, "`estimate` asks for what is needed"
    hindsight_returns = discounted_returns(batch.hindsight, gamma)
    outcomes = np.zeros(len(batch))
    if outcome_coefficient:
        outcomes = batch.in_groups(batch.totals(rewards), lambda values: normalise(values, deviation, epsilon))
    outcome_advantages = np.repeat(outcome_coefficient * outcomes, hindsight_returns.lengths)
    return Ragged(coefficient * hindsight_returns.values + outcome_advantages, hindsight_returns.offsets)
