"""Credit for the parts of a reply: the tokens of its thought and those of its action are judged by rules of their own.

    A(token) = A_action(turn)         for the tokens of the action, and of a reply that has no parts
    A(token) = w * A_thought(turn)    for the tokens of the thought

A_action is by `credit.estimator`, A_thought by `credit.thought.estimator`, w is `credit.thought.weight`. An estimator
that is defined on tokens gives each token its own.

Why: a reply mixes two things that rewards say different things of. A turn reward (the tool was called as it must be,
the answer is among its results) judges the call; a thought is written for what comes of the episode. `mt-grpo` on the
action and `grpo` on the outcome for the thought place credit so. The same estimator with w = 0 trains the calls alone,
and leaves thoughts to what the warm start made of them; w below 1 lets them drift slower.

Paper: none; MT-GRPO (arXiv 2505.11821) and the others give the whole reply the credit of its turn, which is the default
here. Bias: a policy gradient is that of one return, so that the parts together are unbiased only where both estimators
are unbiased for the same rewards and w is 1. Anything else holds a thought to account for less, or for something else,
than what it caused: a choice, to be compared with the whole reply's.
"""

from __future__ import annotations

from collections.abc import Sequence

from turnwise.errors import CreditError


def on_reply_tokens(advantages: Sequence[Sequence[float]], lengths: Sequence[Sequence[int]]) -> list[list[float]]:
    """Advantages of turns as advantages of reply tokens: each token has its turn's. One row per trajectory."""
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
    """Advantages of reply tokens, one row per trajectory: each reply's first `thought_lengths` tokens are its thought.

    `action` and `thought` hold both estimators' advantages of every reply token, `lengths` the tokens of each turn's
    reply. Raises CreditError for a thought that is longer than its reply.
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
