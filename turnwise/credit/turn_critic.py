"""Critics over turns: ArCHer, with the value Q of a reply beside the value V of its state; and SWEET-RL.

    archer

    V_k: the critic before the first reply token of turn k        Q_k: the critic before its last reply token
    A_k = Q_k - V_k                                               for every reply token of turn k
    targets:  V_k <- Q_k        Q_k <- r_k + gamma V_(k+1)        V after the last turn: 0, or the value at a cut

Such an advantage has no reward in it: rewards reach the policy through the critic alone, so that the noise of what
comes after a turn stays out, as do the others' replies. With lambda between 0, ArCHer, and 1 rewards come in as in GAE,
a turn being two steps, the reply and what the world answers (at 1, A_k is the discounted return minus V_k):

    A_k = (Q_k - V_k) + lambda E_k        E_k = (r_k + gamma V_(k+1) - Q_k) + gamma lambda A_(k+1)
    targets:  V_k <- V_k + A_k            Q_k <- Q_k + E_k

ArCHer (Zhou et al., arXiv 2402.19446, equations 1 to 3), with the loss `reinforce`. Its two critics, of which the
smaller value counts, are `critic.heads: 2`. Differs: one function gives both values, at two places of one token
sequence, where the release has networks of their own for Q and V on an encoder's states; the last token of a reply,
which ends it, is not in Q; targets are those of the critic before this batch, where the release has a moving average;
the critic learns from the batch alone, where the release has a buffer of old episodes and draws new replies to old
states; tokens have no baseline of their own. Here advantages are whitened unless `whiten` is False. The other tokens
of a reply have Q's target.

Bias: with lambda 0 the advantage is wrong as far as Q is, and only Q: an error of V is the same for every reply. A
critic that has learned nothing teaches nothing, so give it `critic.warm_up`. A reply of one token has A = 0.

    sweet-rl

    A_k = mean of v over the reply tokens of turn k but the first, minus v at the first     v: the critic before a token
    S_i = beta sum_k A_(i,k)
    J   = sum over groups (sum over pairs in which i has earned more than j of -log sigma(S_i - S_j)) / (members - 1)
    targets:  v <- v - dJ/dv

SWEET-RL (Zhou et al., arXiv 2503.15478, equations 2 and 3): the critic learns from which of two episodes has earned
more that its turns were better, by the model of Bradley and Terry, and no value is fitted. It sees the right answer,
which the policy does not, with `critic.privileged`. Differs: the advantage is of a value head, where the paper has a
language model's log-probability over its first one's, which generalised better there; beta is 1, as it scales a head,
where the paper's 0.1 scales log-probabilities; the policy follows the advantages of its own turns, where the paper
draws 16 replies to a state and prefers the better half (DPO); and all pairs of a group count, where the release pairs
the best episode with each other one. A critic that takes one step per batch (`critic.epochs` and `critic.mini_batches`
1) descends J itself, over the number of targets.

Bias: which turn has made the difference is not asked. Any division of S among turns that tells the episodes apart fits
J, and the critic's own generalisation chooses one. A group whose episodes earn alike teaches nothing, nor does one
episode alone.
"""

from __future__ import annotations

import numpy as np

from turnwise.config.quantities import NotNegative, Positive, Share
from turnwise.credit.batch import CreditBatch, Rewards
from turnwise.credit.generalised_advantage import critic_values, values_after
from turnwise.credit.placement import Placement, on_turns
from turnwise.credit.reinforce import discounted_returns, whitened
from turnwise.data.arrays import Numbers, Ragged
from turnwise.data.tolerance import distinct


def archer(
    batch: CreditBatch,
    *,
    gamma: Share = 1.0,
    lam: Share = 0.0,
    rewards: Placement = "turn",
    whiten: bool = True,
    bootstrap: bool = True,
    epsilon: NotNegative = 1e-8,
) -> Ragged:
    """One advantage per turn, from a critic's values of states and of replies; `gamma` is per turn.

    Whitened by default over trained turns, each counted once; `whiten=False` turns it off. Needs the inputs of `gae`,
    and raises CreditError as it does.
    """
    advantages, _ = _half_steps(batch, gamma, lam, rewards, bootstrap)
    return whitened(advantages, batch.trained_turns, epsilon) if whiten else advantages


def archer_targets(
    batch: CreditBatch,
    *,
    gamma: Share = 1.0,
    lam: Share = 0.0,
    rewards: Placement = "turn",
    whiten: bool = True,
    bootstrap: bool = True,
    epsilon: NotNegative = 1e-8,
) -> Ragged:
    """The critic's target per reply token: V's at the first of a reply of several, Q's at the others."""
    advantages, answer_advantages = _half_steps(batch, gamma, lam, rewards, bootstrap)
    values, tokens = critic_values(batch), batch.turn_tokens
    targets = batch.on_reply_tokens(Ragged(values[tokens[1:] - 1] + answer_advantages, advantages.offsets))
    first, several = tokens[:-1], np.diff(tokens) > 1
    targets.values[first[several]] = (values[first] + advantages.values)[several]
    return targets


def sweet_rl(
    batch: CreditBatch,
    *,
    beta: Positive = 1.0,
    rewards: Rewards = "merged",
    whiten: bool = True,
    epsilon: NotNegative = 1e-8,
) -> Ragged:
    """One advantage per turn, as a critic that learns from pairs of episodes has it. Needs the inputs of `archer`.

    `beta` and `rewards`, by which episodes are compared, are the critic's. Whitened by default, as `archer`.
    """
    advantages = _sweet_rl_advantages(batch)
    return whitened(advantages, batch.trained_turns, epsilon) if whiten else advantages


def sweet_rl_targets(
    batch: CreditBatch,
    *,
    beta: Positive = 1.0,
    rewards: Rewards = "merged",
    whiten: bool = True,
    epsilon: NotNegative = 1e-8,
) -> Ragged:
    """The critic's target per reply token: a step down J, the size of its gradient, from the value."""
    advantages, totals, pulls = _sweet_rl_advantages(batch), batch.totals(rewards), np.zeros(len(batch))
    separations = np.array([beta * row.sum() for row in advantages])
    for members in batch.members.values():
        levels, apart = np.array(distinct(totals[members])), separations[members]
        better = np.sign(levels[:, None] - levels)
        error_probabilities = 0.5 - 0.5 * np.tanh(better * (apart[:, None] - apart) / 2.0)  # sigma, without overflow
        pulls[members] = beta * (better * error_probabilities).sum(axis=1) / max(len(members) - 1, 1)
    lengths = np.diff(batch.turn_tokens)
    turn_pulls = np.repeat(pulls, batch.turn_rewards.lengths) * (lengths > 1)
    moves = np.repeat(turn_pulls / np.maximum(lengths - 1, 1), lengths)
    moves[batch.turn_tokens[:-1]] = -turn_pulls
    return Ragged(critic_values(batch) + moves, batch.trained_tokens.offsets)


def _sweet_rl_advantages(batch: CreditBatch) -> Ragged:
    """The mean value after the first reply token of each turn, minus the value there; 0 of a reply of one token."""
    values, tokens = critic_values(batch), batch.turn_tokens
    lengths = np.diff(tokens)
    first = values[tokens[:-1]]
    sums = np.add.reduceat(values, tokens[:-1]) if len(lengths) else np.zeros(0)
    means = (sums - first) / np.maximum(lengths - 1, 1)
    return Ragged(np.where(lengths > 1, means - first, 0.0), batch.turn_rewards.offsets)


def _half_steps(
    batch: CreditBatch, gamma: float, lam: float, rewards: Placement, bootstrap: bool
) -> tuple[Ragged, Numbers]:
    """A_k of each turn, and E_k of the world's answer to it, [turns]."""
    values, tokens = critic_values(batch), batch.turn_tokens
    before, after = values[tokens[:-1]], values[tokens[1:] - 1]
    turn_rewards = on_turns(batch, rewards)
    following = np.append(before[1:], 0.0)
    following[batch.last_turns] = values_after(batch, bootstrap)
    errors = turn_rewards.values + gamma * following - after
    reply_advantages = discounted_returns(
        Ragged(after - before + lam * errors, turn_rewards.offsets), gamma * lam * lam
    )
    advantage_after = np.append(reply_advantages.values[1:], 0.0)
    advantage_after[batch.last_turns] = 0.0
    return reply_advantages, errors + gamma * lam * advantage_after
