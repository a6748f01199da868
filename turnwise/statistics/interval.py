"""A value with its confidence interval, where the sample supports one; the mean that every estimate uses."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

LEVEL = 0.95
"""The confidence level of intervals and verdicts."""
Unit = Literal["tasks", "seeds", "seeds and tasks"]
Method = Literal[
    "percentile bootstrap",
    "Wilson",
    "Student's t",
    "Student's t, interquartile mean",
    "Student's t, two-way",
    "Student's t, repeated",
]

SINGULAR: dict[Unit, str] = {"tasks": "task", "seeds": "seed", "seeds and tasks": "seed"}


@dataclass(frozen=True)
class Interval:
    """A value, and the bounds of its confidence interval where there is one.

    Raises ValueError for bounds or counts that make no interval.
    """

    value: float
    low: float | None
    """Lower bound; None together with `high` when the sample supports no interval (see `absence`)."""
    high: float | None
    over: Unit
    """The source of variation: how the value would differ with other tasks, with other seeds, or with both."""
    count: int
    """Number of tasks or seeds; the number of seeds where both vary."""
    level: float = LEVEL
    method: Method | None = None
    """The method that gave the bounds; None where there are none."""
    sample: tuple[float, ...] = ()
    """The value of each seed, for figures to show; empty for an interval over tasks."""

    def __post_init__(self) -> None:
        if (self.low is None) != (self.high is None):
            raise ValueError(f"an interval has both bounds or neither; found low={self.low}, high={self.high}")
        bounds = [self.value] if self.low is None or self.high is None else [self.low, self.value, self.high]
        if not all(math.isfinite(bound) for bound in bounds):
            raise ValueError(f"value and bounds must be finite; found {bounds}: leave an undefined cell None instead")
        if bounds[0] > bounds[-1]:
            raise ValueError(f"the lower bound must not exceed the upper one; found {self.low} and {self.high}")
        if self.count < 1:
            raise ValueError(f"an interval is over at least one of its {self.over}; found count={self.count}")

    @property
    def absence(self) -> str | None:
        """Why there are no bounds, in the words of the report; None where there are bounds."""
        if self.low is not None:
            return None
        if self.count == 1:
            return f"one {SINGULAR[self.over]}: no interval"
        return f"all {self.count} {self.over} are equal: no interval"


def finite(values: Sequence[float] | np.ndarray, unit: Unit) -> np.ndarray:
    """The values as a float64 array [values]. Raises ValueError when there is none or one is not finite."""
    sample = np.asarray(values, dtype=np.float64)
    if sample.ndim != 1 or len(sample) == 0 or not np.isfinite(sample).all():
        raise ValueError(f"values must be a list of finite numbers, one per {SINGULAR[unit]}; found {list(values)!r}")
    return sample


def rounding_of(*samples: np.ndarray) -> float:
    """By how much rounding may put off a mean, or a deviation, of such numbers: what is no larger is none at all."""
    return float(100 * np.finfo(float).eps * max(np.abs(sample).max() for sample in samples))


def mean(values: Iterable[float]) -> float:
    """The mean of at least one number; exact, without rounding, where all are equal. Raises ValueError for none."""
    # In one place, so that a table, a verdict and a number's provenance agree to the last bit.
    sample = np.asarray(list(values), dtype=np.float64)
    if len(sample) == 0:
        raise ValueError("a mean needs one value at least; found none")
    return float(sample[0] if (sample == sample[0]).all() else sample.mean())
