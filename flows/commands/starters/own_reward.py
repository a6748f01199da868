"""A reward of one's own: a function of an episode that has ended. Change it into the reward that you need.

turnwise check own_reward:own_reward    does it keep the contract of a reward?
pytest test_own_reward.py               the same, and an example worked by hand
turnwise ablation own_reward.yaml       train with it and without it
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

import turnwise as tw

Tokens = Annotated[int, Field(ge=1)]


def own_reward(trajectory: tw.Trajectory, *, most: Tokens = 30) -> list[float]:
    """1 for every reply of at most so many tokens. Keyword parameters are the reward's options.

    It returns one number per turn, or one number for the episode. It may read all of the trajectory, and nothing else:
    what it returns is kept with the episode. Raise `tw.RewardMissing` where it cannot be known.
    """
    return [float(len(turn.reply_tokens) <= most) for turn in trajectory.turns]
