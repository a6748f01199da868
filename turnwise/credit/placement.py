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
from collections.abc import Sequence
from typing import Literal

from turnwise.credit.batch import CreditBatch

Rewards = Literal["outcome", "merged"]
Placement = Literal["turn", "merged", "outcome"]


def score(batch: CreditBatch, index: int, rewards: Rewards) -> float:
    """The reward of a trajectory, without rewards per token; `merged` adds its turn rewards to the outcome."""
    return batch.outcome[index] + (math.fsum(batch.turn_rewards[index]) if rewards == "merged" else 0.0)


def total(batch: CreditBatch, index: int, rewards: Rewards) -> float:
    """`score` plus the trajectory's rewards per token."""
    return score(batch, index, rewards) + math.fsum(_token_rewards_of_turns(batch, index))


def own_rewards(batch: CreditBatch, index: int) -> list[float]:
    """Each turn's own reward plus its rewards per token, without the outcome."""
    return _with_token_rewards(batch, index, batch.turn_rewards[index])


def on_turns(batch: CreditBatch, index: int, placement: Placement) -> list[float]:
    """The reward of each turn of a trajectory under a placement, with its rewards per token."""
    return _with_token_rewards(batch, index, placed(batch, index, placement))


def placed(batch: CreditBatch, index: int, placement: Placement) -> list[float]:
    """The reward of each turn of a trajectory under a placement, without rewards per token."""
    if placement == "turn":
        *earlier, last = batch.turn_rewards[index]
        return [*earlier, last + batch.outcome[index]]
    return [0.0] * (len(batch.turn_rewards[index]) - 1) + [score(batch, index, placement)]


def on_tokens(batch: CreditBatch, index: int, of_turns: Sequence[float]) -> list[float]:
    """The reward of each reply token: its own, plus its turn's (from `of_turns`) at the last token of the reply."""
    spans = batch.spans(index)
    rewards = [0.0] * spans[-1].stop if batch.token_rewards is None else list(batch.token_rewards[index])
    for span, reward in zip(spans, of_turns, strict=True):
        rewards[span[-1]] += reward
    return rewards


def _with_token_rewards(batch: CreditBatch, index: int, of_turns: Sequence[float]) -> list[float]:
    return [own + paid for own, paid in zip(of_turns, _token_rewards_of_turns(batch, index), strict=True)]


def _token_rewards_of_turns(batch: CreditBatch, index: int) -> list[float]:
    """The sum of each turn's rewards per token; 0 where the batch has none."""
    if batch.token_rewards is None:
        return [0.0] * len(batch.turn_rewards[index])
    rewards = batch.token_rewards[index]
    return [math.fsum(rewards[place] for place in span) for span in batch.spans(index)]
