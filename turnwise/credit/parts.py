"""Separate advantages for the thought and the action of a reply, each from an estimator of its own.

    A(token) = A_action(turn)         for the tokens of the action, and of a reply that has no parts
    A(token) = w * A_thought(turn)    for the tokens of the thought

A_action comes from `credit.estimator`, A_thought from `credit.thought.estimator`; w is `credit.thought.weight`. With an
estimator that is defined on tokens, each token has an advantage of its own.

Why: thought and action of a reply are judged by different rewards. A turn reward (the tool was called correctly, the
answer is among its results) judges the call; a thought serves the outcome of the episode. `mt-grpo` for the action with
`grpo` on the outcome for the thought places credit that way. The same estimator for both with w = 0 trains the calls
alone and leaves thoughts as the warm start made them; w below 1 lets them drift more slowly.

Paper: none; MT-GRPO (arXiv 2505.11821) and the others give the whole reply the advantage of its turn, which is the
default here. Bias: a policy gradient is that of one return, so the parts together are unbiased only where both
estimators are unbiased for the same rewards and w is 1. Any other setting credits a thought with less than what it
caused, or with something else: a choice that is to be compared with the default.
"""

from __future__ import annotations

from collections.abc import Sequence

from turnwise.errors import CreditError


def on_reply_tokens(advantages: Sequence[Sequence[float]], lengths: Sequence[Sequence[int]]) -> list[list[float]]:
    """Spread one advantage per turn to the turn's reply tokens. One row per trajectory.

    `lengths` has the number of reply tokens of each turn.
    """
    return [
        [advantage for advantage, length in zip(of_turns, of_lengths, strict=True) for _ in range(length)]
        for of_turns, of_lengths in zip(advantages, lengths, strict=True)
    ]


def divided(
    action: Sequence[Sequence[float]],
    thought: Sequence[Sequence[float]],
    lengths: Sequence[Sequence[int]],
    thought_lengths: Sequence[Sequence[int]],
    weight: float,
) -> list[list[float]]:
    """Combine the advantages of two estimators into one per reply token; one row per trajectory.

    The first `thought_lengths` tokens of each reply are its thought. `action` and `thought` hold each estimator's
    advantages of every reply token, `lengths` the number of tokens of each turn's reply. `weight` multiplies the
    thought's advantages. Raises CreditError for a thought that is longer than its reply.
    """
    rows = []
    for of_action, of_thought, of_lengths, of_thoughts in zip(action, thought, lengths, thought_lengths, strict=True):
        row: list[float] = []
        for length, thought_length in zip(of_lengths, of_thoughts, strict=True):
            if not 0 <= thought_length <= length:
                raise CreditError(f"a thought must be a part of its reply of {length} tokens; found {thought_length}")
            begin, border, end = len(row), len(row) + thought_length, len(row) + length
            row += [weight * advantage for advantage in of_thought[begin:border]]
            row += of_action[border:end]
        rows.append(row)
    return rows
