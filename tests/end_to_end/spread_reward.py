"""A reward that differs between almost any two replies, so that a group of two has something to learn from."""

import turnwise as tw

MODULUS = 97


def spread(trajectory: tw.Trajectory) -> float:
    """The remainder of the sum of all reply tokens, as a share."""
    return sum(sum(turn.reply_tokens) for turn in trajectory.turns) % MODULUS / MODULUS
