"""Effect sizes, an exact test with the smallest p-value that few runs can give, and the correction of many p-values.

    effect size                  (mean a - mean b) / s, times 1 - 3 / (4 f - 1)    (Hedges 1981), f = n + m - 2
    probability of improvement   P(a > b) + P(a = b) / 2 of a run of each          (Mann & Whitney 1947; as in rliable)
    exact test                   the share of all ways to swap the runs' sides with as large a difference (Fisher 1935)
    Holm's method                the i-th smallest of m p-values times m - i + 1, never below the one before it   (1979)
    Shaffer's method             the same, times how many hypotheses can still be true at once                    (1986)

s is the deviation of the runs, pooled over both sides. The exact test assumes nothing about the distribution; its price
is that n pairs can be swapped in only 2^n ways, so that p is at least 2^(1 - n), 0.0625 for five pairs. Holm's method
is there because of many pairs that are all alike some look different by chance: it bounds the probability of any false
"different" in a family of comparisons by the significance level, whatever their dependence.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np

from turnwise.data.tolerance import distinct
from turnwise.seeding import generator
from turnwise.statistics.interval import finite, rounding_of

RESAMPLES = 10_000
"""The most ways to swap that the exact test enumerates; where there are more, it draws this many at random."""


def effect_size(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Hedges' g from one number per run on each side.

    None where a side has one run, or all runs of each side are equal.
    """
    one, other = finite(first, "seeds"), finite(second, "seeds")
    if min(len(one), len(other)) < 2:
        return None
    freedom = len(one) + len(other) - 2
    pooled = math.sqrt((((one - one.mean()) ** 2).sum() + ((other - other.mean()) ** 2).sum()) / freedom)
    if pooled <= rounding_of(one, other):
        return None
    return float((one.mean() - other.mean()) / pooled * (1 - 3 / (4 * freedom - 1)))


def probability_of_improvement(first: Sequence[float], second: Sequence[float]) -> float:
    """The probability that a run of the first side is higher than a run of the second; 0.5 where both are alike."""
    # Means of the same numbers in another order differ by a rounding, and are no improvement.
    levels = np.array(distinct([*finite(first, "seeds"), *finite(second, "seeds")]))
    one, other = levels[: len(first), None], levels[len(first) :]
    return float((one > other).mean() + (one == other).mean() / 2)


def exact_p(first: Sequence[float], second: Sequence[float], *, paired: bool, seed: int = 0) -> float:
    """The two-sided p of the exact test, from one number per run. `paired`: run i of both sides has the same seed.

    With D the difference of the means, and D* that after a way to swap: 2 min(P[D* <= D], P[D* >= D]), at most 1, over
    all ways (Fisher 1935). Where there are more than `RESAMPLES`, p is estimated from that many drawn with `seed`.
    """
    one, other = finite(first, "seeds"), finite(second, "seeds")
    if _ways(len(one), len(other), paired) > RESAMPLES:
        return _estimated_p(one, other, paired, seed)
    if paired:
        swapped = np.array(list(itertools.product((1.0, -1.0), repeat=len(one)))) * (one - other)
        differences = swapped.mean(axis=1)
    else:
        both = np.concatenate([one, other])
        is_first = np.zeros((_ways(len(one), len(other), paired), len(both)), dtype=bool)
        for way, indices in enumerate(itertools.combinations(range(len(both)), len(one))):
            is_first[way, indices] = True
        differences = np.where(is_first, both / len(one), -both / len(other)).sum(axis=1)
    observed = differences[0]  # nobody is swapped in the first way
    # The numbers' own size decides: where all are equal, every difference is a rounding and has no size.
    rounding = rounding_of(one, other)
    as_low, as_high = (differences <= observed + rounding).mean(), (differences >= observed - rounding).mean()
    return float(min(1.0, 2 * min(as_low, as_high)))


def _estimated_p(one: np.ndarray, other: np.ndarray, paired: bool, seed: int) -> float:
    from scipy import stats  # two seconds

    test = stats.permutation_test(
        (one - other,) if paired else (one, other),
        np.mean if paired else _difference_of_means,
        permutation_type="samples" if paired else "independent",
        vectorized=True,
        n_resamples=RESAMPLES,
        alternative="two-sided",
        rng=generator(seed, "exact test"),
    )
    return float(test.pvalue)


def smallest_exact_p(first: int, second: int, *, paired: bool) -> float:
    """The smallest two-sided p that the exact test can give with `first` and `second` runs on the two sides."""
    return min(1.0, 2.0 / _ways(first, second, paired))


def _ways(first: int, second: int, paired: bool) -> int:
    """How many ways there are to swap runs of the two sides."""
    return 2**first if paired else math.comb(first + second, first)


def _difference_of_means(first: np.ndarray, second: np.ndarray, axis: int = -1) -> np.ndarray:
    return np.mean(first, axis=axis) - np.mean(second, axis=axis)


def equivalence_p(value: float, error: float, freedom: float, margin: float) -> float:
    """The larger p of two one-sided t tests that a difference is `margin` or more on either side (Schuirmann 1987).

    `value` is the difference, `error` its standard error with so many degrees of `freedom`; without any error it is
    0 or 1.
    """
    from scipy import special

    short = margin - abs(value)
    if error == 0.0:
        return 0.0 if short > 0 else 1.0
    return float(special.stdtr(freedom, -short / error))


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """The corrected p-values, in the given order. None, for a comparison that could not be made, stays None.

    Raises ValueError for a p-value outside 0 to 1.
    """
    corrected = iter(shaffer([[p] for p in p_values if p is not None]))
    return [None if p is None else next(corrected)[0] for p in p_values]


def shaffer(groups: Sequence[Sequence[float]]) -> list[list[float]]:
    """The corrected p-values, in the given order, where at most one hypothesis of each group can be true.

    The smallest p is multiplied by the number of groups, each further one by the number of groups that are not wholly
    rejected before it, since so many hypotheses can still be true at once (Shaffer 1986). With one hypothesis in each
    group this is Holm's method. Raises ValueError for a p-value outside 0 to 1.
    """
    places = sorted((p, group, place) for group, values in enumerate(groups) for place, p in enumerate(values))
    remaining = [len(values) for values in groups]
    corrected = [[0.0] * len(values) for values in groups]
    highest = 0.0
    for p, group, place in places:
        if not 0.0 <= p <= 1.0:
            raise ValueError(f"a p-value must lie between 0 and 1; found {p}")
        highest = max(highest, min(1.0, p * sum(each > 0 for each in remaining)))
        corrected[group][place] = highest
        remaining[group] -= 1
    return corrected
