"""The difference between two variants, with the uncertainty from training again and from testing on other tasks.

All runs of both were tested on the same tasks, so values are tables [seeds, tasks], and seeds and tasks vary at once.
With the same seeds on both sides, which share their warm start, their first tasks and their first rollouts, the table
of differences d[s, t] = a[s, t] - b[s, t] has the mean d' and the variance of a two-way layout with random rows and
columns (Searle, Casella & McCulloch 1992, chapter 4):

    V = A + B - C      A = var_s(mean_t d) / S      B = var_t(mean_s d) / T      C = residual mean square / (S T)
    d' +- t(f) sqrt(V)       f = V^2 / (A^2 / (S-1) + B^2 / (T-1) + C^2 / ((S-1)(T-1)))        (Satterthwaite 1946)

With different seeds, A and C are sums over the two sides, as in Welch's test. V is never taken below A or B, the
variances from seeds alone and from tasks alone.

*What differs from the field*: papers resample seeds, or seeds and tasks, and take percentiles, which covers too little
with few seeds and too much with many. `docs/science/coverage.md` has the coverage of each choice. With one seed on
either side there is no interval. Nor is there where all runs and tasks differ by the same, such as 0 and 1: t needs a
spread, so p is then that of the exact test, the smallest that so many runs can give.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from turnwise.statistics.interval import LEVEL, Interval, Method, finite, rounding_of
from turnwise.statistics.significance import smallest_exact_p


@dataclass(frozen=True)
class Difference:
    """The difference of two sides with its interval, and the p-value of no difference."""

    interval: Interval
    p: float | None
    """Two-sided, before any correction. None with one run on a side; where nothing varies 1 if both sides are equal,
    and else that of the exact test."""
    spread: Spread | None = None
    """The standard error of the difference, with its degrees of freedom; None where there is no interval."""


def difference(first: np.ndarray, second: np.ndarray, *, paired: bool) -> Difference:
    """The mean of `first` minus that of `second`, over seeds and tasks.

    Args:
        first: [seeds, tasks].
        second: [seeds, tasks] with the same tasks in the same order. When `paired`, [1, tasks] is one fixed policy,
            such as the warm start, for all seeds.
        paired: whether row i of both has the same seed.

    Raises:
        ValueError: the tables do not fit each other, or hold a number that is not finite.
    """
    _require_tables(first, second, paired)
    count = len(first) if paired else min(len(first), len(second))
    value = float(first.mean() - second.mean())
    seed_differences = tuple(float(each) for each in (first - second).mean(axis=1)) if paired else ()
    estimate = Interval(value, None, None, "seeds and tasks", count, sample=seed_differences)
    if count == 1:
        return Difference(estimate, None)
    spread = two_way_spread(first - second) if paired else two_sample_spread(first, second)
    exact = smallest_exact_p(len(first), len(first) if paired else len(second), paired=paired)
    return _with_bounds(estimate, spread, rounding_of(first, second), exact, "Student's t, two-way")


def difference_of_runs(first: Sequence[float], second: Sequence[float]) -> Difference:
    """The mean of `first` minus that of `second` where they were tested on different tasks.

    By Welch's test on one number per run, over seeds alone.
    """
    sides = one, other = finite(first, "seeds"), finite(second, "seeds")
    count = min(len(one), len(other))
    estimate = Interval(float(one.mean() - other.mean()), None, None, "seeds", count)
    if count == 1:
        return Difference(estimate, None)
    spread = _combine([_run_variance(side) for side in sides], _Part(np.zeros(()), 1), [])
    exact = smallest_exact_p(len(one), len(other), paired=False)
    return _with_bounds(estimate, spread, rounding_of(*sides), exact, "Student's t")


def difference_of_policies(first: Sequence[float] | np.ndarray, second: Sequence[float] | np.ndarray) -> Difference:
    """The mean of `first` minus that of `second`, one number per task, for two policies as they are.

    By the paired t test over tasks: how the two would differ on other tasks of the kind. It says nothing of the methods
    that made them, which another training run might rank the other way. Raises ValueError for other numbers of tasks.
    """
    one, other = finite(first, "tasks"), finite(second, "tasks")
    if len(one) != len(other):
        raise ValueError(f"both policies must have a number for each task; found {len(one)} and {len(other)}")
    estimate = Interval(float(one.mean() - other.mean()), None, None, "tasks", len(one))
    if len(one) == 1:
        return Difference(estimate, None)
    spread = _combine([], _task_variance(one - other), [])
    exact = smallest_exact_p(len(one), len(one), paired=True)
    return _with_bounds(estimate, spread, rounding_of(one, other), exact, "Student's t")


def _with_bounds(estimate: Interval, spread: Spread, rounding: float, exact: float, method: Method) -> Difference:
    """A difference that has no bounds yet, with those of its uncertainty, unless that is a rounding.

    `exact` is the p of the exact test for a difference in which all agree.
    """
    from scipy import special

    error, freedom = float(spread.error), float(spread.freedom)
    if error <= rounding:
        return Difference(estimate, 1.0 if abs(estimate.value) <= rounding else exact)
    half = float(special.stdtrit(freedom, (1 + LEVEL) / 2)) * error
    interval = replace(estimate, low=estimate.value - half, high=estimate.value + half, method=method)
    return Difference(interval, float(2 * special.stdtr(freedom, -abs(estimate.value) / error)), spread)


@dataclass(frozen=True)
class Spread:
    """The uncertainty of a mean over seeds and tasks. Arrays have the axes that came before those two."""

    error: np.ndarray
    """The standard error."""
    freedom: np.ndarray
    """Degrees of freedom of Student's t."""


def two_way_spread(values: np.ndarray) -> Spread:
    """The uncertainty of the mean of one table [..., seeds, tasks], with at least two seeds and two tasks."""
    return _combine([_seed_variance(values)], _task_variance(values.mean(axis=-2)), [_residual_variance(values)])


def two_sample_spread(first: np.ndarray, second: np.ndarray) -> Spread:
    """The uncertainty of the difference of the means of two tables [..., seeds, tasks] with different seeds."""
    sides = (first, second)
    between_tasks = _task_variance(first.mean(axis=-2) - second.mean(axis=-2))
    return _combine(
        [_seed_variance(side) for side in sides], between_tasks, [_residual_variance(side) for side in sides]
    )


@dataclass(frozen=True)
class _Part:
    """One component of the variance of a mean, with the degrees of freedom of its estimate."""

    variance: np.ndarray
    freedom: int


def _seed_variance(values: np.ndarray) -> _Part:
    """The variance from seeds: A of the file's docstring."""
    return _run_variance(values.mean(axis=-1))


def _run_variance(means: np.ndarray) -> _Part:
    """The variance from seeds, of one number per run, [..., seeds]."""
    seeds = means.shape[-1]
    return _Part(means.var(axis=-1, ddof=1) / seeds, seeds - 1)


def _task_variance(means: np.ndarray) -> _Part:
    """The variance from tasks: B of the file's docstring, from the means over seeds, [..., tasks]."""
    tasks = means.shape[-1]
    return _Part(means.var(axis=-1, ddof=1) / tasks, tasks - 1)


def _residual_variance(values: np.ndarray) -> _Part:
    """The residual variance: C of the file's docstring."""
    seeds, tasks = values.shape[-2:]
    rows, columns = values.mean(axis=-1, keepdims=True), values.mean(axis=-2, keepdims=True)
    residuals = values - rows - columns + values.mean(axis=(-2, -1), keepdims=True)
    freedom = (seeds - 1) * (tasks - 1)
    return _Part((residuals**2).sum(axis=(-2, -1)) / freedom / (seeds * tasks), freedom)


def _combine(seeds: Sequence[_Part], tasks: _Part, both: Sequence[_Part]) -> Spread:
    """The standard error sqrt(V) and the degrees of freedom f of the file's docstring."""
    seed_variance = sum((part.variance for part in seeds), np.zeros(()))
    both_variance = sum((part.variance for part in both), np.zeros(()))
    variance = np.maximum(np.maximum(seed_variance, tasks.variance), seed_variance + tasks.variance - both_variance)
    doubts = sum((part.variance**2 / part.freedom for part in [*seeds, tasks, *both]), np.zeros(()))
    # Where nothing varies, f would be 0 / 0: it is set to 1, and never used.
    freedom = np.divide(variance**2, doubts, out=np.ones_like(variance), where=doubts > 0)
    return Spread(np.sqrt(variance), freedom)


def _require_tables(first: np.ndarray, second: np.ndarray, paired: bool) -> None:
    shapes = f"{first.shape} and {second.shape}"
    if first.ndim != 2 or second.ndim != 2 or first.shape[1] != second.shape[1] or first.shape[1] < 2:
        raise ValueError(f"values must be tables [seeds, tasks] with the same tasks, two at least; found {shapes}")
    if len(first) == 0 or len(second) == 0 or (paired and len(second) not in (1, len(first))):
        raise ValueError(f"paired tables must have a row for each seed, the second may have one alone; found {shapes}")
    if not (np.isfinite(first).all() and np.isfinite(second).all()):
        raise ValueError("values must be finite: leave tasks out that have no value in some run")
