"""Intervals over seeds: how would this method do if it were run again?

The training run is the unit, however many tasks each run was tested on. Two summaries, each with Student's t:

    mean                  m +- t(n - 1) s / sqrt(n)                                            (Student 1908)
    interquartile mean    m' +- t(n - 1) max(s / sqrt(n), s_w n / (h sqrt(n)))                 (Tukey & McLaughlin 1963)

m and s are the mean and the deviation of the n runs. m' is the mean of the h runs that remain when a quarter of the n
runs, rounded down, is cut at either end, as in rliable (Agarwal et al. 2021). s_w is the deviation of the runs when
those that were cut are replaced by the nearest that remain. Below four runs nothing is cut, and both summaries are the
same.

A performance profile has such a mean at every threshold t, of the share of scores above it, instead of the mean score:

    F(t) = mean over runs and tasks of [score > t]                       (Dolan & Moré 2002; Agarwal et al. 2021, eq. 1)

A variant whose curve lies above another's everywhere is better by any summary statistic; where curves cross, the choice
of the statistic decides.

*What differs from the papers*: rliable uses percentile bootstraps, also for the band of a profile, which over 3, 5 and
10 runs cover 75, 83 and 90 % instead of 95. Tukey and McLaughlin use s_w alone and t(h - 1), which fails where runs
either learn or collapse. `benchmarks/coverage.py` measures the coverage of each choice: see `docs/science/coverage.md`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from turnwise.data.tolerance import alike
from turnwise.statistics.interval import LEVEL, Interval, Method, finite, mean

CUT = 0.25
"""The share of the runs that the interquartile mean leaves out at either end."""


def student_over_seeds(
    values: Sequence[float], *, level: float = LEVEL, within: tuple[float, float] = (-math.inf, math.inf)
) -> Interval:
    """The mean over seeds with Student's t interval.

    `values` holds one number per seed. `within` is the range of the quantity, e.g. `(0, 1)` for a share; the bounds are
    cut to it, which costs no coverage. One seed gives no interval, and neither do seeds that are all equal, whose
    deviation cannot be estimated. Raises ValueError when there is no value or one is not finite.
    """
    sample = finite(values, "seeds")
    return _interval(sample, mean(sample), mean_error(sample), level, within, "Student's t")


def interquartile_mean_over_seeds(
    values: Sequence[float], *, within: tuple[float, float] = (-math.inf, math.inf)
) -> Interval:
    """The interquartile mean over seeds with Student's t interval; arguments as for `student_over_seeds`.

    It is the mean of the middle half of the seeds, so that a single seed that collapsed does not decide it.
    """
    sample = finite(values, "seeds")
    cut = int(CUT * len(sample))
    middle = float(np.sort(sample)[cut : len(sample) - cut].mean())
    return _interval(sample, middle, interquartile_mean_error(sample), LEVEL, within, "Student's t, interquartile mean")


def performance_profile(scores: np.ndarray, thresholds: Sequence[float]) -> list[Interval]:
    """The share of scores above each threshold, with its interval over seeds.

    `scores`: [seeds, tasks], with at least one task. For the profile of the runs' means give them as a single column.
    Raises ValueError for another shape, or for a score that is not finite.
    """
    if scores.ndim != 2 or 0 in scores.shape or not np.isfinite(scores).all():
        raise ValueError(f"scores must be a table [seeds, tasks] of finite numbers; found one of shape {scores.shape}")
    return [student_over_seeds((scores > threshold).mean(axis=1), within=(0.0, 1.0)) for threshold in thresholds]


def mean_error(samples: np.ndarray) -> np.ndarray:
    """The standard error of the mean along the last axis; NaN for a single value."""
    return samples.std(axis=-1, ddof=1) / math.sqrt(samples.shape[-1]) if samples.shape[-1] > 1 else np.array(math.nan)


def interquartile_mean_error(samples: np.ndarray) -> np.ndarray:
    """The standard error of the interquartile mean along the last axis: the maximum in the file's docstring."""
    count = samples.shape[-1]
    cut = int(CUT * count)
    ordered = np.sort(samples, axis=-1)
    low, high = ordered[..., cut, None], ordered[..., count - 1 - cut, None]
    winsorised = np.clip(ordered, low, high)
    return np.maximum(mean_error(samples), mean_error(winsorised) * count / (count - 2 * cut))


def _interval(
    sample: np.ndarray, value: float, error: np.ndarray, level: float, within: tuple[float, float], method: Method
) -> Interval:
    from scipy import special

    seeds = tuple(float(each) for each in sample)
    if alike(sample):
        return Interval(mean(sample), None, None, "seeds", len(seeds), level, None, seeds)
    half = float(special.stdtrit(len(seeds) - 1, (1 + level) / 2) * error)
    low, high = max(value - half, within[0]), min(value + half, within[1])
    return Interval(value, low, high, "seeds", len(seeds), level, method, seeds)
