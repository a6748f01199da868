"""How large a difference is, apart from how certain; and what so few runs can show at best.

    effect size                  (mean a - mean b) / s, times 1 - 3 / (4 f - 1)    (Hedges 1981), f = n + m - 2
    probability of improvement   P(a > b) + P(a = b) / 2 of a run of each          (Mann & Whitney 1947; as in rliable)
    exact test                   how many of all ways to swap the runs' sides give as large a difference (Fisher 1935)

s is the deviation of the runs, pooled over both sides. The exact test assumes nothing of the distribution, and pays for
it: n pairs can be swapped in 2^n ways, so that p is 2^(1 - n) at least, 0.0625 for five.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from turnwise.seeding import generator
from turnwise.statistics.interval import finite

RESAMPLES = 10_000
"""The exact test is exact up to as many ways to swap, and drawn beyond."""


def effect_size(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Hedges' g of one number per run on either side; None with one run on a side, or where no run differs."""
    one, other = finite(first, "seeds"), finite(second, "seeds")
    if min(len(one), len(other)) < 2:
        return None
    freedom = len(one) + len(other) - 2
    pooled = math.sqrt((((one - one.mean()) ** 2).sum() + ((other - other.mean()) ** 2).sum()) / freedom)
    if pooled == 0.0:
        return None
    return float((one.mean() - other.mean()) / pooled * (1 - 3 / (4 * freedom - 1)))


def probability_of_improvement(first: Sequence[float], second: Sequence[float]) -> float:
    """How probable it is that a run of the first is better than a run of the second; 0.5 where both are alike."""
    from scipy import stats

    one, other = finite(first, "seeds"), finite(second, "seeds")
    higher = stats.mannwhitneyu(one, other, method="asymptotic").statistic
    return float(higher / (len(one) * len(other)))


def exact_p(first: Sequence[float], second: Sequence[float], *, paired: bool, seed: int = 0) -> float:
    """The two-sided p of the exact test of one number per run. `paired`: run i of both has the same seed.

    Beyond `RESAMPLES` ways to swap it is estimated from as many drawn ones; `seed` is of the draw.
    """
    from scipy import stats

    one, other = finite(first, "seeds"), finite(second, "seeds")
    found = stats.permutation_test(
        (one - other,) if paired else (one, other),
        np.mean if paired else _difference_of_means,
        permutation_type="samples" if paired else "independent",
        vectorized=True,
        n_resamples=RESAMPLES,
        alternative="two-sided",
        rng=generator(seed, "exact test"),
    )
    return float(found.pvalue)


def smallest_exact_p(first: int, second: int, *, paired: bool) -> float:
    """The smallest two-sided p that the exact test of so many runs on either side can give."""
    ways = 2**first if paired else math.comb(first + second, first)
    return min(1.0, 2.0 / ways)


def _difference_of_means(first: np.ndarray, second: np.ndarray, axis: int = -1) -> np.ndarray:
    return np.mean(first, axis=axis) - np.mean(second, axis=axis)
