"""Numbers with the uncertainty that they have: intervals over tasks and over seeds, pass@k and avg@k.

Two questions are kept apart. *How would this policy do on other tasks of the kind?* is answered over tasks: the task is
the unit, replicas of a task are averaged first, since they share its difficulty. *How would this method do if it were
run again?* is answered over seeds: the training run is the unit, however many tasks each run was tested on.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy import stats

from turnwise.seeding import generator

Unit = Literal["tasks", "seeds"]
Method = Literal["percentile bootstrap", "Wilson", "Student's t"]


@dataclass(frozen=True)
class Interval:
    """A value, and the bounds of its confidence interval where there is one."""

    value: float
    low: float | None
    """Lower bound; None together with `high` when the sample supports no interval (see `absence`)."""
    high: float | None
    over: Unit
    """What varies: the interval says how the value would differ with other tasks, or with other seeds."""
    count: int
    """Number of tasks or seeds."""
    level: float = 0.95
    method: Method | None = None
    """How the bounds were found; None where there are none."""
    sample: tuple[float, ...] = ()
    """The value of each seed, so that a figure can show them; empty over tasks."""

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
        """Why there are no bounds, as the report says it; None where there are."""
        if self.low is not None:
            return None
        if self.count == 1:
            return f"one {self.over.removesuffix('s')}: no interval"
        return f"all {self.count} {self.over} are equal: no interval"


def over_tasks(values: Sequence[float], *, seed: int, proportion: bool) -> Interval:
    """The mean over tasks with the interval that suits it.

    `values` holds one mean per task. For a proportion whose values are all 0 or 1 (one replica per task, or replicas
    that agree) this is Wilson's interval, which keeps its width when every task succeeds; otherwise the bootstrap.
    """
    if proportion and all(value in (0.0, 1.0) for value in values):
        return wilson(round(sum(values)), len(values))
    return bootstrap_over_tasks(values, seed=seed)


def bootstrap_over_tasks(values: Sequence[float], *, seed: int, resamples: int = 2000, level: float = 0.95) -> Interval:
    """The mean over tasks with a percentile bootstrap interval (Efron 1979).

    `values` holds one mean per task: replicas of a task are averaged before. One task, or tasks that are all equal,
    give no interval: the bootstrap's would have no width, and claim a certainty that nobody has. For proportions use
    `wilson` then, or `over_tasks`, which chooses. Raises ValueError when there is no value or one is not finite.
    """
    sample = _finite(values, "tasks")
    if (sample == sample[0]).all():
        return Interval(float(sample[0]), None, None, "tasks", len(sample), level)
    bounds = stats.bootstrap(
        (sample,),
        np.mean,
        n_resamples=resamples,
        batch=max(1, 1_000_000 // len(sample)),
        vectorized=True,
        confidence_level=level,
        method="percentile",
        rng=generator(seed, "bootstrap"),
    ).confidence_interval
    mean, low, high = float(sample.mean()), float(bounds.low), float(bounds.high)
    return Interval(mean, low, high, "tasks", len(sample), level, "percentile bootstrap")


def wilson(successes: int, count: int, *, level: float = 0.95) -> Interval:
    """A proportion over tasks, `successes` of `count`, with Wilson's score interval (Wilson 1927).

    It has width at 0 and at 1 also, and stays within them. Raises ValueError unless 0 <= successes <= count and
    count is 1 at least.
    """
    if not (count >= 1 and 0 <= successes <= count):
        raise ValueError(f"successes must lie between 0 and count, count be 1 at least; found {successes} of {count}")
    bounds = stats.binomtest(successes, count).proportion_ci(confidence_level=level, method="wilson")
    return Interval(successes / count, float(bounds.low), float(bounds.high), "tasks", count, level, "Wilson")


def student_over_seeds(
    values: Sequence[float], *, level: float = 0.95, within: tuple[float, float] = (-math.inf, math.inf)
) -> Interval:
    """The mean over seeds with Student's t interval (Student 1908): mean +- t(n - 1) s / sqrt(n).

    `values` holds one number per seed. With few seeds this is wide, and rightly so: a percentile bootstrap over three
    covers 75 % instead of 95. `within` is the range that the quantity can have, e.g. `(0, 1)` for a share; the bounds
    are cut to it, which costs no coverage. One seed gives no interval, and neither do seeds that are all equal, whose
    spread cannot be estimated. Raises ValueError when there is no value or one is not finite.
    """
    sample = _finite(values, "seeds")
    seeds = tuple(float(value) for value in sample)
    if (sample == sample[0]).all():
        return Interval(seeds[0], None, None, "seeds", len(seeds), level, None, seeds)
    mean = float(sample.mean())
    half = float(stats.t.ppf((1 + level) / 2, len(seeds) - 1) * sample.std(ddof=1)) / math.sqrt(len(seeds))
    low, high = max(mean - half, within[0]), min(mean + half, within[1])
    return Interval(mean, low, high, "seeds", len(seeds), level, "Student's t", seeds)


def pass_at_k(successes: int, samples: int, k: int) -> float:
    """The chance that at least one of k samples of a task succeeds, from `successes` of `samples`.

    The unbiased estimator of Chen et al. 2021 (arXiv 2107.03374, equation 1): 1 - C(n - c, k) / C(n, k).
    Raises ValueError unless 1 <= k <= samples and 0 <= successes <= samples.
    """
    _check_counts(successes, samples)
    if not 1 <= k <= samples:
        raise ValueError(f"pass@k needs 1 <= k <= samples of every task; found k={k}, samples={samples}")
    return 1.0 - math.comb(samples - successes, k) / math.comb(samples, k)


def mean_pass_at_k(successes: Sequence[int], samples: Sequence[int], k: int) -> float:
    """pass@k averaged over tasks: `successes[i]` of `samples[i]` for task i, every task with at least k samples."""
    return _mean_over_tasks([pass_at_k(*counts, k) for counts in zip(successes, samples, strict=True)])


def average_at_k(successes: Sequence[int], k: int) -> float:
    """avg@k: the share of successes among k samples of a task, averaged over tasks. `successes[i]` of k for task i."""
    for count in successes:
        _check_counts(count, k)
    return _mean_over_tasks([count / k for count in successes])


def _check_counts(successes: int, samples: int) -> None:
    if not (samples >= 1 and 0 <= successes <= samples):
        raise ValueError(f"successes must lie between 0 and the number of samples; found {successes} of {samples}")


def _mean_over_tasks(values: Sequence[float]) -> float:
    return float(_finite(values, "tasks").mean())


def _finite(values: Sequence[float], unit: Unit) -> np.ndarray:
    sample = np.asarray(values, dtype=np.float64)
    if sample.ndim != 1 or len(sample) == 0 or not np.isfinite(sample).all():
        raise ValueError(f"values must be a list of finite numbers, one per {unit[:-1]}; found {list(values)!r}")
    return sample
