"""A credit rule of one's own: who gets how much of a trajectory's rewards. Change it into the rule that you need.

turnwise check own_rule:own_rule        does it keep the contract of a credit rule, and how biased is it?
pytest test_own_rule.py                 the same, and an example worked by hand
turnwise ablation own_rule.yaml         train with it, next to the rule of params.yaml
"""

from __future__ import annotations

from typing import Annotated

import numpy as np
from pydantic import Field

import turnwise as tw

Scale = Annotated[float, Field(gt=0.0)]


def _advantages(batch: tw.CreditBatch, *, scale: Scale = 1.0) -> tw.Ragged:
    """The rewards of a trajectory minus the mean of its group, on every turn.

    Keyword parameters are the rule's options.
    """

    def centred(rewards: np.ndarray) -> np.ndarray:
        """What each trajectory of a group gets, of the rewards of all of them."""
        return scale * (rewards - rewards.mean())

    # "merged": the outcome and all turn rewards, summed. `batch.turn_rewards` has them one by one.
    return batch.on_every_turn(batch.in_groups(batch.totals("merged"), centred))


own_rule = tw.Estimator(
    _advantages,
    level="turn",  # or "token": a number per reply token
    needs=(),  # of "reply_lengths", "values" (a critic's, which is then trained), "anchors" (the world's states)
    grouped=True,  # it compares the trajectories of a group
)
