"""Scores normalised by the two baseline policies: random actions, and the oracle.

    normalised = (score - random) / (oracle - random)

0 is the random policy and 1 the oracle, which knows the answer: so success rates in different worlds and on different
task sets become comparable (Bellemare et al. 2013 on Atari). Both baselines were run on the same task set as the score,
and their means are treated as exact.
"""

from __future__ import annotations

import dataclasses

from turnwise.statistics.interval import Interval


def normalised(score: Interval, random: float, oracle: float) -> Interval | None:
    """The score on the scale from random (0) to oracle (1), bounds and sample included.

    None where the oracle is no better than random.
    """
    if oracle <= random:
        return None

    def between(value: float) -> float:
        return (value - random) / (oracle - random)

    return dataclasses.replace(
        score,
        value=between(score.value),
        low=None if score.low is None else between(score.low),
        high=None if score.high is None else between(score.high),
        sample=tuple(between(value) for value in score.sample),
    )
