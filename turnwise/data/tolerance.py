"""When rewards count as equal: sums of the same rewards in another order differ by rounding, and mean nothing.

0.1 + 0.1 + 0.1 and 0.3 differ by 5.6e-17. Dividing by a deviation would make of that an advantage of 1. Values are
alike where the largest and the smallest differ by at most 1e-12 of the largest magnitude, which is thousands of
roundings, or by at most 1e-15, for terms that cancel to nearly 0. Every rule that asks whether a group has spread asks
here: normalisation, selection, monitors, and what is expected of a policy before training.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from turnwise.data.arrays import Numbers

RELATIVE_TOLERANCE = 1e-12
"""Of the largest magnitude."""
ABSOLUTE_TOLERANCE = 1e-15


def alike(values: Sequence[float] | Numbers) -> bool:
    """Whether all values are equal but for rounding; no values and one value are."""
    numbers = np.asarray(values, dtype=np.float64)
    return not len(numbers) or float(np.ptp(numbers)) <= _tolerance(numbers)


def distinct(values: Sequence[float] | Numbers) -> list[float]:
    """The values with each that is alike a smaller one replaced by that, so that equal ones compare as equal."""
    numbers = np.asarray(values, dtype=np.float64)
    if not len(numbers):
        return []
    tolerance, order = _tolerance(numbers), np.argsort(numbers, kind="stable")
    levels = numbers.copy()
    level = numbers[order[0]]
    for place in order.tolist():
        if numbers[place] - level > tolerance:
            level = numbers[place]
        levels[place] = level
    return [float(value) for value in levels]


def _tolerance(numbers: Numbers) -> float:
    return max(RELATIVE_TOLERANCE * float(np.abs(numbers).max()), ABSOLUTE_TOLERANCE)
