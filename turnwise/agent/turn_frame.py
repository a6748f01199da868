"""RAGEN's frame of an observation (arXiv 2504.20073): the last reward, the number of the turn and the actions left.

    Reward: -0.2
    Turn 2:
    # # # # # #
    ...
    You have 8 actions left.

The reward is the sum of what the world paid for the turn before; the first turn has none. Differs from RAGEN: the state
has no heading, and the form of a reply is stated in the instruction alone, not again at every turn.
"""

from __future__ import annotations


def framed(observation: str, turn: int, actions_left: int, reward: float | None) -> str:
    """The observation before turn `turn`, counted from 1, in RAGEN's frame."""
    before = [] if reward is None else [f"Reward: {reward:g}"]
    left = f"You have {actions_left} action{'' if actions_left == 1 else 's'} left."
    return "\n".join([*before, f"Turn {turn}:", observation, left])
