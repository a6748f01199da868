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
from itertools import repeat
from typing import Literal

import numpy as np

from turnwise.data.arrays import Numbers, Ragged

Deviation = Literal["unbiased", "population", "none"]

NO_BASELINE = "a trajectory that has no other to be compared with has no baseline: it gets 0"


def normalise(values: Sequence[float] | Numbers, deviation: Deviation, epsilon: float) -> Numbers:
    """`norm(x)` over the values of one group. A group of one has no baseline: it gets 0 and a warning.

    All-equal values give exactly 0, whatever epsilon is.
    """
    if len(values) == 1:
        warnings.warn(NO_BASELINE, stacklevel=2)
        return np.zeros(1)
    return _standardised(np.asarray(values, dtype=np.float64), deviation, epsilon)


def against_others(values: Numbers) -> Numbers:
    """`others(x)`: each of at least two values minus the mean of the others. Sums to 0."""
    if _equal(values):
        return np.zeros(len(values))
    total = math.fsum(values.tolist())
    return values - (total - values) / (len(values) - 1)


def whiten(values: Ragged, trained: Ragged, epsilon: float) -> Ragged:
    """`whiten(x)`, one row per trajectory: mean and unbiased deviation over the entries flagged in `trained`.

    The other entries are left out of the statistics and get 0.
    """
    whitened = np.zeros(len(values.values))
    whitened[trained.values] = _standardised(values.values[trained.values], "unbiased", epsilon)
    return Ragged(whitened, values.offsets)


def scale(values: Numbers, deviation: Deviation, epsilon: float) -> float:
    """The divisor of differences from the mean: deviation plus epsilon; 1 with `none`, and where all are equal."""
    if deviation == "none" or _equal(values):
        return 1.0
    differences = values - math.fsum(values.tolist()) / len(values)
    # Python's power, whose last bit is sometimes another than that of a product: stored results rest on it.
    squares = math.fsum(map(pow, differences.tolist(), repeat(2)))
    return math.sqrt(squares / (len(values) - (deviation == "unbiased"))) + epsilon


def _standardised(values: Numbers, deviation: Deviation, epsilon: float) -> Numbers:
    if _equal(values):
        return np.zeros(len(values))
    return (values - math.fsum(values.tolist()) / len(values)) / scale(values, deviation, epsilon)


def _equal(values: Numbers) -> bool:
    return not len(values) or bool((values == values[0]).all())
