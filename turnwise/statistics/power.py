"""Power: how many seeds decide a difference that is worth having.

Runs of two variants with the same seed are compared in pairs. If the differences have deviation s and mean d, the t
statistic of n pairs follows the noncentral t distribution; a two-sided test of level a finds d, on its own side, with

    power(n) = P(T > t),   T ~ t(n - 1, noncentrality d sqrt(n) / s),   t = the 1 - a / 2 quantile of t(n - 1)

(Cohen 1988, chapter 2). Two deviations of pairs differ where sum and difference correlate (Pitman 1939, Morgan 1939);
by Fisher's transformation a correlation r is found with

    n = 3 + ((z(1 - a / 2) + z(power)) / artanh |r|)^2,   z the quantiles of the normal.

s is a pilot's: runs on other seeds, before those that decide. Where many relations are tested
together, a is divided by their number: Holm's correction begins there, so the seeds are too many rather than too few.
"""

from __future__ import annotations

import math

POWER = 0.8
"""The probability with which a difference that is worth having is to be found."""
MOST_SEEDS = 1000


def power(difference: float, deviation: float, seeds: int, level: float, beside: float = 0.0) -> float:
    """The probability that a two-sided paired t test finds `difference`, which is at least 0, on its own side.

    `deviation` is that of the differences over seeds, `level` the significance level, and `beside` the standard error
    that no seed lowers, such as that of the tasks. Raises ValueError for fewer than
    two seeds, and for a deviation that is not above 0.
    """
    if seeds < 2 or not deviation > 0:
        raise ValueError(f"seeds must be 2 or more, and the deviation above 0; found {seeds} and {deviation:g}")
    return power_of_test(difference, math.hypot(deviation / math.sqrt(seeds), beside), seeds - 1, level)


def power_of_test(difference: float, error: float, freedom: float, level: float) -> float:
    """The same of any t test, by the standard error of the difference, above 0, and its degrees of freedom."""
    from scipy import special

    bound = special.stdtrit(freedom, 1 - level / 2)
    return float(1 - special.nctdtr(freedom, difference / error, bound))


def seeds_to_decide(difference: float, deviation: float, level: float, beside: float = 0.0) -> int | None:
    """The fewest seeds with which `difference` is found with probability `POWER`; None if `MOST_SEEDS` are too few.

    `beside` is the standard error that no seed lowers.
    """
    fewest, most = 2, 2
    while power(difference, deviation, most, level, beside) < POWER:
        if most >= MOST_SEEDS:
            return None
        fewest, most = most, min(2 * most, MOST_SEEDS)
    while fewest < most:
        middle = (fewest + most) // 2
        if power(difference, deviation, middle, level, beside) < POWER:
            fewest = middle + 1
        else:
            most = middle
    return most


def smallest_decided(deviation: float, seeds: int, level: float) -> float:
    """The smallest difference that `seeds` find with probability `POWER`, in the unit of `deviation`."""
    return smallest_found(deviation / math.sqrt(seeds), seeds - 1, level)


def smallest_found(error: float, freedom: float, level: float) -> float:
    """The smallest difference that a t test with this standard error finds with probability `POWER`, in its unit."""
    from scipy import optimize

    largest = error
    while power_of_test(largest, error, freedom, level) < POWER:
        largest *= 2
    return float(optimize.brentq(lambda each: power_of_test(each, error, freedom, level) - POWER, 0.0, largest))


def seeds_to_correlate(correlation: float, level: float) -> int | None:
    """The fewest pairs that find a correlation with probability `POWER`; None if `MOST_SEEDS` are too few."""
    from scipy import special

    size = abs(math.atanh(correlation))
    quantiles = float(special.ndtri(1 - level / 2) + special.ndtri(POWER))
    if size * math.sqrt(MOST_SEEDS - 3) < quantiles:
        return None
    return math.ceil(3 + (quantiles / size) ** 2)
