"""At which turn or token rewards are paid, for the estimators that work on turns and tokens.

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

from typing import Literal

import numpy as np

from turnwise.credit.batch import CreditBatch
from turnwise.data.arrays import Ragged

Placement = Literal["turn", "merged", "outcome"]


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
        rewards[batch.last_turns] = batch.scores(placement)
    return Ragged(rewards, batch.turn_rewards.offsets)


def on_tokens(batch: CreditBatch, turn_rewards: Ragged) -> Ragged:
    """The reward of each reply token: its own, plus its turn's (from `turn_rewards`) at the last token of the reply."""
    ends = batch.turn_tokens
    rewards = np.zeros(ends[-1]) if batch.token_rewards is None else batch.token_rewards.values.copy()
    rewards[ends[1:] - 1] += turn_rewards.values
    return Ragged(rewards, ends[batch.turn_rewards.offsets])


def _with_token_rewards(batch: CreditBatch, turn_rewards: Ragged) -> Ragged:
    return Ragged(turn_rewards.values + batch.token_rewards_of_turns.values, turn_rewards.offsets)
