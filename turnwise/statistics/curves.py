"""Summaries of learning curves: area, cost until a success threshold is reached, and value at a budget.

A curve is a list of (spent, value), ascending in what was spent: the iterations, tokens, steps or seconds before an
evaluation, and the evaluation's result. All functions raise ValueError for a curve that does not ascend.

The curve of a run that a guard or an alarm has ended stops where the run did. Its policy changes no more: it is what
the method has to show from then on, however much more is spent. So

    area             is over the training that was planned, with the last value kept to its end (`carried_forward`)
    reached_at       is as for any run: a threshold that was not reached before the end counts as never reached
    interpolated     is the last value for every budget beyond the end, once it is carried forward, and `equal_budget`
                     goes by the other runs

Leaving such a run out, or averaging it over its own shorter length, would favour the method whose runs collapse soon.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from turnwise.statistics.interval import Interval
from turnwise.statistics.tasks import wilson

Points = Sequence[tuple[float, float]]


def area(points: Points) -> float | None:
    """The area under the curve divided by its length: the mean value over training. None with fewer than two points.

    Of a run that was ended, give the curve that `carried_forward` makes.
    """
    _require_ascending(points)
    if len(points) < 2:
        return None
    spent, values = np.array(points, dtype=np.float64).T
    return float(np.trapezoid(values, spent) / (spent[-1] - spent[0]))


def carried_forward(points: Points, end: float) -> list[tuple[float, float]]:
    """The curve with its last value kept until `end` has been spent: that of a run which was ended before.

    A curve that goes as far, or that has no points, stays as it is.
    """
    _require_ascending(points)
    curve = list(points)
    if curve and curve[-1][0] < end:
        curve.append((end, curve[-1][1]))
    return curve


def reached_at(points: Points, value: float) -> float | None:
    """What had been spent at the first evaluation with at least this value; None where there is none."""
    _require_ascending(points)
    return next((spent for spent, result in points if result >= value), None)


def interpolated(points: Points, budget: float) -> float:
    """The value at the budget, on the straight line between the evaluations before and after it.

    Raises ValueError for a budget that the curve does not reach, or with which it has not begun.
    """
    _require_ascending(points)
    if not points or not points[0][0] <= budget <= points[-1][0]:
        raise ValueError(f"a budget must be within the curve; found {budget:g} for {[spent for spent, _ in points]}")
    spent, values = np.array(points, dtype=np.float64).T
    return float(np.interp(budget, spent, values))


@dataclass(frozen=True)
class Spending:
    """What of an iteration costs something, by the names of its artifacts."""

    sampling: str
    """The artifact whose clock counts the tokens that were sampled to learn from, and whose turns are steps of the
    world."""
    update: str
    """The artifact that counts the tokens that were trained on, and the optimizer's steps."""
    evaluation: str
    """The artifact whose episodes are the points of a curve."""
    free: frozenset[str]
    """The artifacts that count as no cost: a run would learn the same without them."""


@dataclass(frozen=True)
class AtEqualBudget:
    """The results of all variants on the validation task set at an equal budget."""

    budget: str
    """The unit of the budget: an `Axis`, or `tokens` in records of former versions."""
    spent: float
    """The largest budget that every run has spent, in that unit; runs that were ended count, and do not limit it."""
    shown: dict[str, Interval]
    """By variant, the result at the budget, between evaluations on a straight line."""
    differences: list[tuple[str, str, Interval]] = field(default_factory=list)
    """By pair of variants, the first minus the second at the budget, over seeds and tasks."""

    @property
    def heading(self) -> str:
        """The budget with its unit, as the heading of a table, such as `1,000 sampled tokens`."""
        amount, unit = f"{self.spent:,.0f}", self.budget.replace("_", " ")
        return f"{amount} {unit.removesuffix('s') if amount == '1' else unit}"


def equal_budget(spent: Sequence[float], ended: Sequence[bool]) -> float:
    """The largest budget at which runs can be compared, by what each has spent and whether it was ended early.

    It is what every run that went on has spent; where all were ended, the most that one has.
    """
    went_on = [each for each, early in zip(spent, ended, strict=True) if not early]
    return min(went_on) if went_on else max(spent)


@dataclass(frozen=True)
class Reached:
    """When the runs of one variant reached the success threshold."""

    stated: float
    """The success threshold."""
    at: tuple[float | None, ...]
    """For each run, what was spent until then (such as iterations); None where the run never reached it, also because
    it was ended before."""
    share: Interval
    """The share of the runs that reached it."""

    @property
    def median(self) -> float | None:
        """The median over runs of what was spent; None where half never reached it, since they might have later."""
        # A run that never reached the threshold counts as later than all others.
        middle = statistics.median(float("inf") if spent is None else spent for spent in self.at)
        return None if middle == float("inf") else middle


def reached(curves: Sequence[Points], stated: float) -> Reached:
    """When each run, with one curve each, reached the threshold `stated`."""
    at = tuple(reached_at(points, stated) for points in curves)
    share = wilson(sum(spent is not None for spent in at), len(at), over="seeds")
    return Reached(stated, at, share)


def _require_ascending(points: Points) -> None:
    spent = [each for each, _ in points]
    if any(later <= earlier for earlier, later in itertools.pairwise(spent)):
        raise ValueError(f"a curve's points must ascend in what was spent; found {spent}")
