"""How often the rewards of a group differ: where they are all alike, a rule that compares within groups learns nothing.

Let a task pay the reward v with probability q_v. The rewards of a group of n independent episodes of it differ with
probability

    f(n) = 1 - sum over v of q_v^n          1 - p^n - (1 - p)^n where only success pays, with probability p

From m >= n episodes of a task, of which c_v paid v, the unbiased estimate is 1 - sum over v of C(c_v, n) / C(m, n), as
for pass@k (arXiv 2107.03374, equation 1). With fewer episodes f(n) is bounded: it grows with n, and ever less, since
each q_v^n falls ever less, so that

    f(m) <= f(n) <= f(m) (n - 1) / (m - 1)          2 <= m <= n

With one episode of each task, tasks that are all alike are the best case: f is concave in q, so that f of the shares
over all tasks is at least the mean of f over them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from turnwise.data.tolerance import distinct


@dataclass(frozen=True)
class SpreadShare:
    """The expected share (0 to 1) of groups whose rewards differ, as bounds; equal where tasks were played enough."""

    least: float
    most: float


def chance_of_spread(shares: Iterable[float], size: int) -> float:
    """The probability that not all rewards of a group of `size` are alike, where each value has one of `shares`.

    `shares` are the probabilities of the different values, which sum to 1. Raises ValueError for a size below 2.
    """
    _require_size(size)
    return 1.0 - math.fsum(share**size for share in shares)


def expected_spread(rewards: Iterable[Sequence[float]], size: int) -> SpreadShare:
    """The expected share of groups of `size` whose rewards differ, from the rewards of played episodes, task by task.

    Each task counts once. Where some task was played more than once, those played once are left out. Raises ValueError
    for a size below 2 and where there are no rewards at all.
    """
    _require_size(size)
    played = [task_rewards for task_rewards in rewards if task_rewards]
    if not played:
        raise ValueError("the spread of groups is estimated from played episodes; found none")
    if several := [task_rewards for task_rewards in played if len(task_rewards) > 1]:
        bounds = [_task_bounds(task_rewards, size) for task_rewards in several]
        least, most = (math.fsum(values) / len(values) for values in zip(*bounds, strict=True))
        return SpreadShare(least, min(1.0, most))
    counts = Counter(distinct([reward for task_rewards in played for reward in task_rewards]))
    return SpreadShare(0.0, chance_of_spread([count / len(played) for count in counts.values()], size))


def _task_bounds(rewards: Sequence[float], size: int) -> tuple[float, float]:
    """Unbiased estimates of both bounds for one task; the upper one may be above 1."""
    subset_size = min(size, len(rewards))
    alike = sum(math.comb(count, subset_size) for count in Counter(distinct(rewards)).values())
    least = 1.0 - alike / math.comb(len(rewards), subset_size)
    return least, least * ((size - 1) / (subset_size - 1))


def _require_size(size: int) -> None:
    if size < 2:
        raise ValueError(f"rewards can differ in a group of at least 2; found a size of {size}")
