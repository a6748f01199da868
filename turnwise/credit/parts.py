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

import numpy as np

from turnwise.credit.batch import CreditBatch
from turnwise.data.arrays import Ragged
from turnwise.errors import CreditError


def divided(batch: CreditBatch, action: Ragged, thought: Ragged, thought_lengths: Ragged, weight: float) -> Ragged:
    """Combine the advantages of two estimators into one per reply token; one row per trajectory.

    The first `thought_lengths` tokens of each reply are its thought: one number per turn. `action` and `thought` hold
    each estimator's advantages of every reply token. `weight` multiplies the thought's advantages. Raises CreditError
    for a thought that is longer than its reply.
    """
    begins, lengths = batch.turn_tokens[:-1], np.diff(batch.turn_tokens)
    for turn in np.flatnonzero((thought_lengths.values < 0) | (thought_lengths.values > lengths)).tolist():
        raise CreditError(
            f"a thought must be a part of its reply of {lengths[turn]} tokens; found {thought_lengths.values[turn]}",
            "TW-long-thought",
        )
    is_thought = np.arange(batch.turn_tokens[-1]) < np.repeat(begins + thought_lengths.values, lengths)
    return Ragged(np.where(is_thought, weight * thought.values, action.values), action.offsets)
