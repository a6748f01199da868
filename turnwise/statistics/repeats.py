"""Repeats: whether runs that were made again, where bits cannot agree, show the same as those that were recorded.

Both were tested on the same tasks, so what varies is the seed. Runs that were repeated with n seeds, two at least, are
compared by pairs; of one that was repeated alone, the m recorded seeds of its variant say how runs vary:

    n > 1     D = mean of (repeated - recorded)       error = s(repeated - recorded) / sqrt(n)      n - 1 degrees
    n = 1     D = repeated - mean of the recorded     error = s(recorded) sqrt(1 + 1 / m)           m - 1 degrees

With a margin d that was written down before, two one-sided tests of level a (Schuirmann 1987) reject a difference as
large as d where |D| + t(1 - a) error < d: the repetition is *within the margin*. Else it *differs* where a two-sided
test of level a finds a difference, and is *undecided* otherwise: what was not found is not shown to be absent. Where
all the numbers that should vary are equal they say nothing of how runs vary, and only a difference of 0 is decided.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from turnwise.data.tolerance import alike
from turnwise.statistics.interval import Interval
from turnwise.statistics.power import MOST_SEEDS, POWER
from turnwise.statistics.significance import equivalence_p

Answer = Literal["within the margin", "differs", "undecided"]
SIGNIFICANCE = 0.05


@dataclass(frozen=True)
class Repeat:
    """How repeated runs of one variant compare with those that were recorded."""

    answer: Answer
    margin: float
    difference: Interval
    """Repeated minus recorded, over seeds; its interval is that of the two one-sided tests, of 90 %."""
    further: int | None = None
    """Of an undecided one, how many more seeds to repeat so that a repetition without any difference is found within
    the margin with a probability of 80 %; None where so many as a thousand are too few, or nothing shows how runs vary.
    """


def compare_repeats(recorded: Mapping[int, float], repeated: Mapping[int, float], margin: float) -> Repeat:
    """Compare the results of repeated runs with those that were recorded, by seed; every repeated seed is recorded.

    Raises ValueError for a margin that is not above 0, without a repeated run, and for one whose seed is not recorded.
    """
    if not margin > 0:
        raise ValueError(f"a margin must be above 0; found {margin:g}")
    if not repeated or not repeated.keys() <= recorded.keys():
        raise ValueError(f"repeated runs must be recorded ones; found seeds {list(repeated)} of {list(recorded)}")
    differences = np.array([value - recorded[seed] for seed, value in repeated.items()])
    if len(repeated) > 1:
        value, sample = float(differences.mean()), differences
        factor = 1 / math.sqrt(len(sample))
    else:
        sample = np.array(list(recorded.values()))
        value = float(next(iter(repeated.values())) - sample.mean())
        factor = math.sqrt(1 + 1 / len(sample))
    if len(sample) == 1 or (alike(sample) and not alike([value, 0.0])):
        return Repeat("undecided", margin, _interval(value, None, len(repeated)))
    deviation, freedom = float(sample.std(ddof=1)), len(sample) - 1
    return _decide(value, deviation, factor, freedom, margin, len(repeated))


def _decide(value: float, deviation: float, factor: float, freedom: int, margin: float, seeds: int) -> Repeat:
    from scipy import special

    error = deviation * factor
    half = float(special.stdtrit(freedom, 1 - SIGNIFICANCE)) * error
    interval = _interval(value, half, seeds)
    if equivalence_p(value, error, freedom, margin) < SIGNIFICANCE:
        return Repeat("within the margin", margin, interval)
    if abs(value) > float(special.stdtrit(freedom, 1 - SIGNIFICANCE / 2)) * error:
        return Repeat("differs", margin, interval)
    # A difference of two runs varies by sqrt(2) of what one run does, where the pairs show nothing better.
    return Repeat(
        "undecided", margin, interval, _further(deviation * (math.sqrt(2) if seeds == 1 else 1), margin, seeds)
    )


def _interval(value: float, half: float | None, seeds: int) -> Interval:
    low, high = (None, None) if half is None else (value - half, value + half)
    return Interval(value, low, high, "seeds", seeds, 1 - 2 * SIGNIFICANCE, None if half is None else "Student's t")


def _further(deviation: float, margin: float, seeds: int) -> int | None:
    """How many more pairs hold a repetition that does not differ to be within the margin, four times in five."""
    from scipy import special

    for count in range(max(2, seeds + 1), MOST_SEEDS + 1):
        bounds = special.stdtrit(count - 1, 1 - SIGNIFICANCE) + special.stdtrit(count - 1, (1 + POWER) / 2)
        if bounds * deviation / math.sqrt(count) <= margin:
            return count - seeds
    return None
