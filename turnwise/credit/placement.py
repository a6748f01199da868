"""Which rewards count, and at which turn or token they are paid. Every estimator reads its rewards from here.

    score_i          = outcome_i  (+ sum of turn rewards_i, for `merged`)
    turn, K turns    = r_1, ..., r_(K-1), r_K + outcome         MT-PPO (MT-GRPO's second version, arXiv 2505.11821)
    merged           = 0, ..., 0, sum of r + outcome            PPO-MR
    outcome          = 0, ..., 0, outcome                       PPO-OR

Where an estimator works on tokens, a turn's reward is paid at the last token of its reply. `turn` and `merged` have the
same total and differ in placement alone; `outcome` leaves the turn rewards out: compare placements with the total held
fixed.

Rewards per reply token (such as a KL penalty) are always added: at their own tokens where an estimator works on tokens,
summed over a turn or a trajectory where it does not.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np

from turnwise.credit.batch import CreditBatch
from turnwise.data.arrays import Numbers, Ragged

Rewards = Literal["outcome", "merged"]
Placement = Literal["turn", "merged", "outcome"]


def scores(batch: CreditBatch, rewards: Rewards) -> Numbers:
    """The reward of each trajectory, without rewards per token; `merged` adds its turn rewards to the outcome."""
    of_turns = [math.fsum(row) if rewards == "merged" else 0.0 for row in batch.turn_rewards.tolist()]
    return np.array(batch.outcome, dtype=np.float64) + np.array(of_turns, dtype=np.float64)


def totals(batch: CreditBatch, rewards: Rewards) -> Numbers:
    """`scores` plus the rewards per token of each trajectory."""
    of_tokens = [math.fsum(row) for row in _token_rewards_of_turns(batch).tolist()]
    return scores(batch, rewards) + np.array(of_tokens, dtype=np.float64)


def own_rewards(batch: CreditBatch) -> Ragged:
    """Each turn's own reward plus its rewards per token, without the outcome."""
    return _with_token_rewards(batch, batch.turn_rewards)


def on_turns(batch: CreditBatch, placement: Placement) -> Ragged:
    """The reward of each turn under a placement, with its rewards per token."""
    return _with_token_rewards(batch, placed(batch, placement))


def placed(batch: CreditBatch, placement: Placement) -> Ragged:
    """The reward of each turn under a placement, without rewards per token."""
    if placement == "turn":
        rewards = batch.turn_rewards.values.copy()
        rewards[batch.last_turns] += batch.outcome
    else:
        rewards = np.zeros(len(batch.turn_rewards.values))
        rewards[batch.last_turns] = scores(batch, placement)
    return Ragged(rewards, batch.turn_rewards.offsets)


def on_tokens(batch: CreditBatch, of_turns: Ragged) -> Ragged:
    """The reward of each reply token: its own, plus its turn's (from `of_turns`) at the last token of the reply."""
    ends = batch.turn_tokens
    rewards = np.zeros(ends[-1]) if batch.token_rewards is None else batch.token_rewards.values.copy()
    rewards[ends[1:] - 1] += of_turns.values
    return Ragged(rewards, ends[batch.turn_rewards.offsets])


def _with_token_rewards(batch: CreditBatch, of_turns: Ragged) -> Ragged:
    return Ragged(of_turns.values + _token_rewards_of_turns(batch).values, of_turns.offsets)


def _token_rewards_of_turns(batch: CreditBatch) -> Ragged:
    """The sum of each turn's rewards per token; 0 where the batch has none."""
    sums = np.zeros(len(batch.turn_rewards.values))
    if batch.token_rewards is not None:
        sums[:] = [math.fsum(row) for row in Ragged(batch.token_rewards.values, batch.turn_tokens).tolist()]
    return Ragged(sums, batch.turn_rewards.offsets)
