"""Means and standard deviations, computed here for every estimator.

    norm(x)_i    = (x_i - mean(x)) / (deviation(x) + epsilon)         within a group
    others(x)_i  = x_i - mean of the other x = n / (n - 1) (x_i - mean(x))
    whiten(x)_i  = (x_i - mean(x)) / (deviation(x) + epsilon)         over the trained entries of the batch

What differs between systems is the deviation: unbiased, divided by n-1 (verl, TRL, MT-GRPO); population, divided by n
(rLLM, ART); none (Dr.GRPO, arXiv 2503.20783, which leaves the scale of the rewards alone).

Sums are exact (`math.fsum`), so that they do not depend on the order of trajectories. Equal values give exactly 0, so
that a zero-variance group can be recognised by its advantages.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Literal

Deviation = Literal["unbiased", "population", "none"]

NO_BASELINE = "a trajectory that has no other to be compared with has no baseline: it gets 0"


def normalise(values: Sequence[float], deviation: Deviation, epsilon: float) -> list[float]:
    """`norm(x)` over the values of one group. A group of one has no baseline: it gets 0 and a warning.

    All-equal values give exactly 0, whatever epsilon is.
    """
    if len(values) == 1:
        warnings.warn(NO_BASELINE, stacklevel=2)
        return [0.0]
    return _standardised(values, deviation, epsilon)


def against_others(values: Sequence[float]) -> list[float]:
    """`others(x)`: each of at least two values minus the mean of the others. Sums to 0."""
    if _equal(values):
        return [0.0] * len(values)
    total = math.fsum(values)
    return [value - (total - value) / (len(values) - 1) for value in values]


def whiten(values: Sequence[Sequence[float]], trained: Sequence[Sequence[bool]], epsilon: float) -> list[list[float]]:
    """`whiten(x)`, one row per trajectory: mean and unbiased deviation over the entries flagged in `trained`.

    The other entries are left out of the statistics and get 0.
    """
    counted = [
        value
        for row, flags in zip(values, trained, strict=True)
        for value, flag in zip(row, flags, strict=True)
        if flag
    ]
    whitened = iter(_standardised(counted, "unbiased", epsilon))
    return [[next(whitened) if flag else 0.0 for flag in flags] for flags in trained]


def scale(values: Sequence[float], deviation: Deviation, epsilon: float) -> float:
    """The divisor of differences from the mean: deviation plus epsilon; 1 with `none`, and where all are equal."""
    if deviation == "none" or _equal(values):
        return 1.0
    mean = math.fsum(values) / len(values)
    squares = math.fsum((value - mean) ** 2 for value in values)
    return math.sqrt(squares / (len(values) - (deviation == "unbiased"))) + epsilon


def _standardised(values: Sequence[float], deviation: Deviation, epsilon: float) -> list[float]:
    if _equal(values):
        return [0.0] * len(values)
    mean, divisor = math.fsum(values) / len(values), scale(values, deviation, epsilon)
    return [(value - mean) / divisor for value in values]


def _equal(values: Sequence[float]) -> bool:
    return all(value == values[0] for value in values)
