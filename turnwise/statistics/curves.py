"""Learning curves as numbers: the area under them, when they reach a stated success, and what a budget bought.

A curve is a list of (spent, value): iterations, tokens or seconds until an evaluation, ascending, and what it showed.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from turnwise.statistics.interval import Interval
from turnwise.statistics.tasks import wilson

Points = Sequence[tuple[float, float]]


def area(points: Points) -> float | None:
    """The area under the curve divided by its length: the mean value on the way. None with fewer than two points."""
    _require_ascending(points)
    if len(points) < 2:
        return None
    spent, values = np.array(points, dtype=np.float64).T
    return float(np.trapezoid(values, spent) / (spent[-1] - spent[0]))


def reached_at(points: Points, value: float) -> float | None:
    """What had been spent when an evaluation first showed the value or more; None where none did."""
    _require_ascending(points)
    return next((spent for spent, shown in points if shown >= value), None)


def within_budget(points: Points, budget: float) -> float | None:
    """What the last evaluation showed that the budget pays for; None where it pays for none."""
    _require_ascending(points)
    return next((shown for spent, shown in reversed(points) if spent <= budget), None)


@dataclass(frozen=True)
class Reached:
    """When the runs of one variant reached a stated success."""

    stated: float
    at: tuple[float | None, ...]
    """Of each run: iterations, or what else was spent; None where it was never reached."""
    share: Interval
    """Of the runs that reached it."""

    @property
    def median(self) -> float | None:
        """The median run's; None where half of the runs never reached it, since they might have much later."""
        # A run that never arrived counts as later than all others.
        middle = statistics.median(float("inf") if spent is None else spent for spent in self.at)
        return None if middle == float("inf") else middle


def reached(curves: Sequence[Points], stated: float) -> Reached:
    """When each of the runs, one curve each, reached a stated value."""
    at = tuple(reached_at(points, stated) for points in curves)
    share = wilson(sum(spent is not None for spent in at), len(at), over="seeds")
    return Reached(stated, at, share)


def _require_ascending(points: Points) -> None:
    spent = [each for each, _ in points]
    if any(later <= earlier for earlier, later in itertools.pairwise(spent)):
        raise ValueError(f"a curve's points must ascend in what was spent; found {spent}")
