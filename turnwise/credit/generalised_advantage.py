"""Generalised advantage estimation over tokens, turns, or both. V is a critic's value of the state before the step.

    delta_t = r_t + gamma V_(t+1) - V_t
    A_t     = delta_t + gamma lambda A_(t+1)

    gae           steps are reply tokens; the next value is that of the next reply token, across observations
    turn-gae      steps are turns; V is the value at the first reply token of a turn
    bi-level-gae  outer level: steps are turns, with gamma_turn, and V is the value at the *last* reply token of a turn;
                  inner level: steps are the reply tokens of one turn, whose last token is paid the outer A + V

After the last step V is 0, or the value at the cut where a limit cut the trajectory off. lambda is the option
`lam`, since `lambda` is a keyword of Python. A critic's target is A + V, before whitening.

Papers: Schulman et al. (arXiv 1506.02438); MT-PPO, PPO-OR and PPO-MR (MT-GRPO, arXiv 2505.11821, second version), which
are `gae` with rewards placed by `turn`, `outcome` and `merged`; Turn-PPO (arXiv 2512.17008) for `turn-gae`; RAGEN
(arXiv 2504.20073) for bi-level GAE. gamma and lambda default to 1, as in RAGEN and AgentGym-RL; gamma_turn to RAGEN's
0.95. Turn-PPO uses 0.99 and 0.9.

Differs from the papers. The released bi-level GAE treats every token with a reward other than 0 as the end of a turn,
so that turns with reward 0 vanish and an all-zero trajectory raises; here a turn ends where its reply ends. (With
gamma, gamma_turn and lambda all 1 it is `gae`: the two levels cancel.) On turns, and in bi-level GAE, rewards per token
are paid at the end of their turn. Whitening adds epsilon, 1e-8, to the deviation, not to the variance.
"""

from __future__ import annotations

from collections.abc import Sequence

from turnwise.config.quantities import NotNegative, Share
from turnwise.credit.batch import CreditBatch
from turnwise.credit.normalisation import whiten as whitened
from turnwise.credit.placement import Placement, on_tokens, on_turns, placed
from turnwise.errors import CreditError


def gae(
    batch: CreditBatch,
    *,
    gamma: Share = 1.0,
    lam: Share = 1.0,
    rewards: Placement = "turn",
    whiten: bool = True,
    epsilon: NotNegative = 1e-8,
) -> list[list[float]]:
    """One advantage per reply token, from GAE over the trajectory's reply tokens.

    Whitened by default, as in PPO, over the trained reply tokens of the batch; `whiten=False` turns it off. Needs
    `reply_lengths` and `values`, and `bootstrap` for trajectories that were cut off. Raises CreditError where one is
    missing.
    """
    advantages = [
        _recursion(
            on_tokens(batch, index, placed(batch, index, rewards)),
            critic_values(batch, index),
            _value_after(batch, index),
            gamma,
            lam,
        )
        for index in range(len(batch))
    ]
    return whitened(advantages, batch.trained_tokens, epsilon) if whiten else advantages


def turn_gae(
    batch: CreditBatch,
    *,
    gamma: Share = 1.0,
    lam: Share = 1.0,
    rewards: Placement = "turn",
    whiten: bool = True,
    epsilon: NotNegative = 1e-8,
) -> list[list[float]]:
    """One advantage per turn, from GAE over turns; `gamma` and `lam` (lambda) are per turn.

    Whitened by default over trained turns, each counted once; `whiten=False` turns it off. Needs the inputs of `gae`,
    but reads only the values at the first reply token of each turn. Raises CreditError as `gae` does.
    """
    advantages = []
    for index in range(len(batch)):
        values = critic_values(batch, index)
        at_starts = [values[span[0]] for span in batch.spans(index)]
        of_turns = on_turns(batch, index, rewards)
        advantages.append(_recursion(of_turns, at_starts, _value_after(batch, index), gamma, lam))
    return whitened(advantages, batch.trained_turns, epsilon) if whiten else advantages


def bi_level_gae(
    batch: CreditBatch,
    *,
    gamma: Share = 1.0,
    gamma_turn: Share = 0.95,
    lam: Share = 1.0,
    rewards: Placement = "turn",
    whiten: bool = True,
    epsilon: NotNegative = 1e-8,
) -> list[list[float]]:
    """One advantage per reply token, from GAE over turns and then over the tokens of each turn.

    Whitened by default over the trained reply tokens of the batch; `whiten=False` turns it off. `lam` (lambda) is
    used at both levels. Needs the inputs of `gae`. Raises CreditError as `gae` does.
    """
    advantages = []
    for index in range(len(batch)):
        values, spans = critic_values(batch, index), batch.spans(index)
        at_ends = [values[span[-1]] for span in spans]
        of_turns = on_turns(batch, index, rewards)
        outside = _recursion(of_turns, at_ends, _value_after(batch, index), gamma_turn, lam)
        inside: list[float] = []
        for span, advantage, value in zip(spans, outside, at_ends, strict=True):
            paid = [0.0] * (len(span) - 1) + [advantage + value]
            inside += _recursion(paid, values[span.start : span.stop], 0.0, gamma, lam)
        advantages.append(inside)
    return whitened(advantages, batch.trained_tokens, epsilon) if whiten else advantages


def critic_targets(batch: CreditBatch, advantages: Sequence[Sequence[float]], *, of_turns: bool) -> list[list[float]]:
    """The critic's targets, A + V per reply token, from advantages that are not whitened.

    With `of_turns` there is one advantage per turn, and every token of a turn gets its turn's target, since the return
    still to come is the same for all of them.
    """
    targets = []
    for index, row in enumerate(advantages):
        values, spans = critic_values(batch, index), batch.spans(index)
        steps = spans if of_turns else [range(place, place + 1) for place in range(len(row))]
        targets.append([advantage + values[step[0]] for advantage, step in zip(row, steps, strict=True) for _ in step])
    return targets


def critic_values(batch: CreditBatch, index: int) -> Sequence[float]:
    """The values of one trajectory's reply tokens. Raises CreditError without a critic."""
    if batch.values is None:
        raise CreditError("values must be given, one per reply token, by a critic; found none in the batch")
    return batch.values[index]


def _recursion(
    rewards: Sequence[float], values: Sequence[float], value_after: float, gamma: float, lam: float
) -> list[float]:
    """The advantage of each step, by the recursion at the head of this file, from the last step to the first."""
    advantages = [0.0] * len(rewards)
    next_value, following = value_after, 0.0
    for step in reversed(range(len(rewards))):
        following = rewards[step] + gamma * next_value - values[step] + gamma * lam * following
        advantages[step] = following
        next_value = values[step]
    return advantages


def _value_after(batch: CreditBatch, index: int) -> float:
    """The value after the last step: 0 where the trajectory ended, `bootstrap` where a limit cut it off."""
    if batch.truncated is None or not batch.truncated[index]:
        return 0.0
    if batch.bootstrap is None:
        raise CreditError(
            f"bootstrap must hold the critic's value where a limit cut a trajectory off; trajectory {index} is "
            "truncated, and the batch has none"
        )
    return batch.bootstrap[index]
