"""The group normalisation that GRPO's relatives share: the one place where a deviation is computed.

    norm(x) = (x - mean(x)) / (deviation(x) + epsilon)

What differs between systems is the deviation: unbiased, divided by n-1 (verl, TRL, MT-GRPO); population, divided by n
(rLLM, ART); none (Dr.GRPO, arXiv 2503.20783, which leaves the scale of the rewards alone).
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Literal, get_args

from turnwise.errors import CreditError

Deviation = Literal["unbiased", "population", "none"]


def require_deviation(deviation: str, epsilon: float) -> None:
    """Raise CreditError for an unknown deviation or an epsilon that is negative."""
    if deviation not in get_args(Deviation):
        raise CreditError(f"deviation must be one of {', '.join(get_args(Deviation))}; found {deviation!r}")
    if not epsilon >= 0:
        raise CreditError(f"epsilon must be at least 0; found {epsilon}")


def normalise(values: Sequence[float], deviation: Deviation, epsilon: float) -> list[float]:
    """`norm(x)` over the values of one group. A group of one has no baseline: it gets 0, and a warning says so.

    All-equal values give exactly 0, whatever epsilon is.
    """
    if len(values) == 1:
        warnings.warn("a group of one trajectory has no baseline: its advantage is 0", stacklevel=2)
        return [0.0]
    if all(value == values[0] for value in values):
        return [0.0] * len(values)
    mean = math.fsum(values) / len(values)
    return [(value - mean) / scale(values, deviation, epsilon) for value in values]


def scale(values: Sequence[float], deviation: Deviation, epsilon: float) -> float:
    """What differences from the mean are divided by: the deviation plus epsilon, or 1 where there is none."""
    if deviation == "none" or len(values) < 2:
        return 1.0
    mean = math.fsum(values) / len(values)
    squares = math.fsum((value - mean) ** 2 for value in values)
    return math.sqrt(squares / (len(values) - (deviation == "unbiased"))) + epsilon
