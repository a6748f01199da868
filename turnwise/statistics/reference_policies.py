"""Scores beside what no learning reaches, and what could be reached.

    normalised = (score - random) / (oracle - random)

0 is a random player, 1 one that knows the answer: successes in different worlds, and on different panels, become
comparable (Bellemare et al. 2013 on Atari). Both players played the same panel and are taken as exact.
"""

from __future__ import annotations

import dataclasses

from turnwise.statistics.interval import Interval


def normalised(score: Interval, random: float, oracle: float) -> Interval | None:
    """The score between the random player, 0, and the oracle, 1; None where the oracle is no better than random."""
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
