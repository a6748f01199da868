"""Intervals over tasks: how would this policy do on other tasks of the kind?

The task is the unit: replicas of a task are averaged first, since they share its difficulty.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist

import numpy as np

from turnwise.data.tolerance import alike
from turnwise.seeding import generator
from turnwise.statistics.interval import LEVEL, Interval, Unit, finite, mean

RESAMPLES = 2000


def over_tasks(values: Sequence[float], *, seed: int, proportion: bool) -> Interval:
    """The mean over tasks, with Wilson's interval or a bootstrap.

    `values` holds one mean per task. For a proportion whose values are all 0 or 1 (one replica per task, or replicas
    that agree) the interval is Wilson's, which has a width even when every task succeeds; otherwise the bootstrap's.
    `seed` is that of the bootstrap.
    """
    if proportion and all(value in (0.0, 1.0) for value in values):
        return wilson(round(sum(values)), len(values))
    return bootstrap_over_tasks(values, seed=seed)


def bootstrap_over_tasks(values: Sequence[float], *, seed: int) -> Interval:
    """The mean over tasks with a percentile bootstrap interval (Efron 1979).

    `values` holds one mean per task: replicas of a task are averaged before. One task, or tasks that are all equal,
    give no interval: the bootstrap's would have width 0 and claim a certainty that is not there. For proportions use
    `wilson` then, or `over_tasks`, which chooses. Raises ValueError when there is no value or one is not finite.
    """
    sample = finite(values, "tasks")
    if alike(sample):
        return Interval(mean(sample), None, None, "tasks", len(sample))
    random, batch = generator(seed, "bootstrap"), max(1, 1_000_000 // len(sample))
    means = [
        sample[random.integers(len(sample), size=(min(batch, RESAMPLES - done), len(sample)))].mean(axis=1)
        for done in range(0, RESAMPLES, batch)
    ]
    low, high = map(float, np.quantile(np.concatenate(means), [(1 - LEVEL) / 2, (1 + LEVEL) / 2]))
    return Interval(mean(sample), low, high, "tasks", len(sample), method="percentile bootstrap")


def wilson(successes: int, count: int, *, over: Unit = "tasks") -> Interval:
    """A proportion over tasks, `successes` of `count`, with Wilson's score interval (Wilson 1927, in Newcombe's form).

    (k + z^2/2 +- z sqrt(k (n - k) / n + z^2/4)) / (n + z^2)

    The interval lies within 0 and 1, and has a width even at 0 and at 1. `over` names what was counted, e.g. `seeds`
    for the share of seeds that reached a threshold. Raises ValueError unless 0 <= successes <= count and count >= 1.
    """
    if not (count >= 1 and 0 <= successes <= count):
        raise ValueError(f"successes must lie between 0 and count, count be 1 at least; found {successes} of {count}")
    z = NormalDist().inv_cdf((1 + LEVEL) / 2)
    half = z * math.sqrt(successes * (count - successes) / count + z**2 / 4)
    low = 0.0 if successes == 0 else (successes + z**2 / 2 - half) / (count + z**2)
    high = 1.0 if successes == count else (successes + z**2 / 2 + half) / (count + z**2)
    return Interval(successes / count, low, high, over, count, method="Wilson")
