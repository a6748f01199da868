"""Generalised advantage estimation over tokens, turns, or both. V is a critic's value of the state before the step.

    delta_t = r_t + gamma V_(t+1) - V_t
    A_t     = delta_t + gamma lambda A_(t+1)

    gae           steps are reply tokens; the next value is that of the next reply token, across observations
    turn-gae      steps are turns; V is the value at the first reply token of a turn
    bi-level-gae  outer level: steps are turns, with gamma_turn, and V is the value at the *last* reply token of a turn;
                  inner level: steps are the reply tokens of one turn, whose last token is paid the outer A + V

    length-adaptive-gae   gae with lambda_i = 1 - 1 / (alpha l_i) for a trajectory of l_i reply tokens, at least 0
    cross-level-gae       (1 - w) A(token) + w A(turn): A(turn) is turn-gae's, with gamma_turn and lambda_turn; A(token)
                          is gae's within a turn, and what follows its last token is A(turn) of the next turn

After the last step V is 0, or the value at the cut where a limit cut the trajectory off; with `bootstrap=False` it is 0
there too. lambda is the option `lam`, since `lambda` is a keyword of Python. A critic's target is A + V, before
whitening.

Papers: Schulman et al. (arXiv 1506.02438); MT-PPO, PPO-OR and PPO-MR (MT-GRPO, arXiv 2505.11821, second version), which
are `gae` with rewards placed by `turn`, `outcome` and `merged`; Turn-PPO (arXiv 2512.17008) for `turn-gae`; RAGEN
(arXiv 2504.20073) for bi-level GAE; VAPO (arXiv 2504.05118) for lambda by length, with its alpha of 0.05; no paper for
`cross-level-gae`, which is a branch of RAGEN's (`compute_weighted_cross_level_gae_advantage_return`). gamma and lambda
default to 1, as in RAGEN and AgentGym-RL; gamma_turn of bi-level GAE to RAGEN's 0.95. Turn-PPO uses 0.99 and 0.9.

A lambda by length looks 1 / (1 - lambda) = alpha l tokens ahead, a share of the trajectory, where a fixed one looks
equally far in long ones and in short ones. For l <= 1 / alpha, 20 tokens, it is 0: A is delta. The critic's targets are
those of lambda 1, as in the paper; those of `cross-level-gae` are A(token) + V, as in its release. Bias: with lambda
below 1 an advantage leans on the critic, and is wrong as far as the critic is.

Differs from the papers. None of them bootstraps: a limit ends a trajectory there as its own end does, which teaches
that nothing was left to gain. The released bi-level GAE treats every token with a reward other than 0 as the end of a
turn, so that turns with reward 0 vanish and an all-zero trajectory raises; here a turn ends where its reply ends. (With
gamma, gamma_turn and lambda all 1 it is `gae`: the two levels cancel.) The released `cross-level-gae` pays a trajectory
its last reward alone, at its last turn. On turns, and in bi-level GAE, rewards per token are paid at the end of their
turn. Whitening adds epsilon, 1e-8, to the deviation, not to the variance.
"""

from __future__ import annotations

import numpy as np

from turnwise.config.quantities import NotNegative, Positive, Share
from turnwise.credit.batch import CreditBatch
from turnwise.credit.placement import Placement, on_tokens, on_turns, placed
from turnwise.credit.reinforce import whitened
from turnwise.data.arrays import Numbers, Ragged
from turnwise.errors import CreditError


def gae(
    batch: CreditBatch,
    *,
    gamma: Share = 1.0,
    lam: Share = 1.0,
    rewards: Placement = "turn",
    whiten: bool = True,
    bootstrap: bool = True,
    epsilon: NotNegative = 1e-8,
) -> Ragged:
    """One advantage per reply token, from GAE over the trajectory's reply tokens.

    Whitened by default, as in PPO, over the trained reply tokens of the batch; `whiten=False` turns it off. Needs
    `reply_lengths` and `values`, and `bootstrap` for trajectories that were cut off, unless the option of that name is
    False. Raises CreditError where one is missing.
    """
    token_rewards = on_tokens(batch, placed(batch, rewards))
    advantages = _recursion(token_rewards, critic_values(batch), values_after(batch, bootstrap), gamma, lam)
    return whitened(advantages, batch.trained_tokens, epsilon) if whiten else advantages


def turn_gae(
    batch: CreditBatch,
    *,
    gamma: Share = 1.0,
    lam: Share = 1.0,
    rewards: Placement = "turn",
    whiten: bool = True,
    bootstrap: bool = True,
    epsilon: NotNegative = 1e-8,
) -> Ragged:
    """One advantage per turn, from GAE over turns; `gamma` and `lam` (lambda) are per turn.

    Whitened by default over trained turns, each counted once; `whiten=False` turns it off. Needs the inputs of `gae`,
    but reads only the values at the first reply token of each turn. Raises CreditError as `gae` does.
    """
    at_starts = critic_values(batch)[batch.turn_tokens[:-1]]
    advantages = _recursion(on_turns(batch, rewards), at_starts, values_after(batch, bootstrap), gamma, lam)
    return whitened(advantages, batch.trained_turns, epsilon) if whiten else advantages


def bi_level_gae(
    batch: CreditBatch,
    *,
    gamma: Share = 1.0,
    gamma_turn: Share = 0.95,
    lam: Share = 1.0,
    rewards: Placement = "turn",
    whiten: bool = True,
    bootstrap: bool = True,
    epsilon: NotNegative = 1e-8,
) -> Ragged:
    """One advantage per reply token, from GAE over turns and then over the tokens of each turn.

    Whitened by default over the trained reply tokens of the batch; `whiten=False` turns it off. `lam` (lambda) is
    used at both levels. Needs the inputs of `gae`. Raises CreditError as `gae` does.
    """
    values, ends = critic_values(batch), batch.turn_tokens
    at_ends = values[ends[1:] - 1]
    outside = _recursion(on_turns(batch, rewards), at_ends, values_after(batch, bootstrap), gamma_turn, lam)
    token_rewards = np.zeros(len(values))
    token_rewards[ends[1:] - 1] = outside.values + at_ends
    inside = _recursion(Ragged(token_rewards, ends), values, np.zeros(len(at_ends)), gamma, lam)
    advantages = Ragged(inside.values, ends[batch.turn_rewards.offsets])
    return whitened(advantages, batch.trained_tokens, epsilon) if whiten else advantages


def length_adaptive_gae(
    batch: CreditBatch,
    *,
    gamma: Share = 1.0,
    alpha: Positive | None = 0.05,
    rewards: Placement = "turn",
    whiten: bool = True,
    bootstrap: bool = True,
    epsilon: NotNegative = 1e-8,
) -> Ragged:
    """One advantage per reply token, as `gae`, with a lambda by the trajectory's reply tokens.

    `alpha` None is lambda 1. Needs the inputs of `gae`, and raises CreditError as it does.
    """
    token_rewards = on_tokens(batch, placed(batch, rewards))
    lam = np.ones(len(batch)) if alpha is None else np.maximum(0.0, 1.0 - 1.0 / (alpha * token_rewards.lengths))
    advantages = _recursion(token_rewards, critic_values(batch), values_after(batch, bootstrap), gamma, lam)
    return whitened(advantages, batch.trained_tokens, epsilon) if whiten else advantages


def cross_level_gae(
    batch: CreditBatch,
    *,
    gamma: Share = 1.0,
    lam: Share = 1.0,
    gamma_turn: Share = 1.0,
    lam_turn: Share = 1.0,
    weight: Share = 0.5,
    rewards: Placement = "turn",
    whiten: bool = True,
    bootstrap: bool = True,
    epsilon: NotNegative = 1e-8,
) -> Ragged:
    """One advantage per reply token: `weight` of its turn's, and the rest of its own. Needs the inputs of `gae`.

    Raises CreditError as `gae` does.
    """
    values, ends, last = critic_values(batch), batch.turn_tokens, values_after(batch, bootstrap)
    turn_advantages = _recursion(on_turns(batch, rewards), values[ends[:-1]], last, gamma_turn, lam_turn)
    token_rewards, following = on_tokens(batch, placed(batch, rewards)), np.zeros(len(turn_advantages.values))
    value_after = np.append(values[ends[1:-1]], 0.0)[: len(following)]
    value_after[batch.last_turns] = last
    following[:-1] = turn_advantages.values[1:]
    following[batch.last_turns] = 0.0
    inside = _recursion(Ragged(token_rewards.values, ends), values, value_after, gamma, lam, following)
    mixed = (1.0 - weight) * inside.values + weight * batch.on_reply_tokens(turn_advantages).values
    advantages = Ragged(mixed, token_rewards.offsets)
    return whitened(advantages, batch.trained_tokens, epsilon) if whiten else advantages


def critic_targets(batch: CreditBatch, advantages: Ragged, *, per_turn: bool) -> Ragged:
    """The critic's targets, A + V per reply token, from advantages that are not whitened.

    With `per_turn` there is one advantage per turn, and every token of a turn gets its turn's target, since the return
    still to come is the same for all of them.
    """
    values = critic_values(batch)
    if not per_turn:
        return Ragged(advantages.values + values, advantages.offsets)
    return batch.on_reply_tokens(Ragged(advantages.values + values[batch.turn_tokens[:-1]], advantages.offsets))


def critic_values(batch: CreditBatch) -> Numbers:
    """The values of all reply tokens, [reply tokens]. Raises CreditError without a critic."""
    if batch.values is None:
        raise CreditError(
            "values must be given, one per reply token, by a critic; found none in the batch", "TW-rule-lacks-input"
        )
    values: Numbers = batch.values.values
    return values


def _recursion(
    rewards: Ragged,
    values: Numbers,
    value_after: Numbers,
    gamma: float,
    lam: float | Numbers,
    advantage_after: Numbers | None = None,
) -> Ragged:
    """The advantage of each step, by the recursion at the head of this file: from the last step of a row to its first.

    `values` has one number per step, `value_after` one per row; so has `lam` where rows differ in it, and
    `advantage_after`, the advantage of what follows the last step, which is 0 by default.
    """
    advantages = np.zeros(len(values))
    next_value = value_after.copy()
    following = np.zeros(len(rewards)) if advantage_after is None else advantage_after.copy()
    lam = np.broadcast_to(lam, len(rewards))
    for rows, steps in rewards.backward():
        delta = rewards.values[steps] + gamma * next_value[rows] - values[steps]
        following[rows] = delta + gamma * lam[rows] * following[rows]
        advantages[steps] = following[rows]
        next_value[rows] = values[steps]
    return Ragged(advantages, rewards.offsets)


def values_after(batch: CreditBatch, bootstrap: bool) -> Numbers:
    """The value after the last step of each trajectory: 0 where it ended, the batch's where a limit cut it off."""
    if not bootstrap:
        return np.zeros(len(batch))
    truncated = np.array([False] * len(batch) if batch.truncated is None else batch.truncated, dtype=bool)
    if batch.bootstrap is None:
        for index in np.flatnonzero(truncated).tolist():
            raise CreditError(
                f"bootstrap must hold the critic's value where a limit cut a trajectory off; trajectory {index} is "
                "truncated, and the batch has none",
                "TW-rule-lacks-input",
            )
        return np.zeros(len(batch))
    return np.where(truncated, batch.bootstrap, 0.0)
