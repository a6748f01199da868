"""Looks at results on the way, with the error rate kept over all of them: seeds are added until a pair is decided.

With n_k of at most N seeds at look k, the information is t_k = n_k / N, and the level spent by then (Lan & DeMets 1983)

    O'Brien and Fleming's kind    a(t) = 4 - 4 Phi(z / sqrt(t)),   z the 1 - a / 4 quantile of the normal
    Pocock's kind                 a(t) = a log(1 + (e - 1) t)

The nominal level of each look is what a Brownian motion spends there (Armitage, McPherson & Rowe 1969). A test's p
value is compared with it, which holds for Student's t as for the normal (Jennison & Turnbull 2000, section 4.4). The
sequential p value is the smallest level at which the looks so far would have stopped; Holm's method over those of
several pairs keeps the chance of any false "different" (Maurer & Bretz 2013). The repeated interval, the estimate +- t
at the nominal level, holds at all looks together (Jennison & Turnbull 1989): a difference outside it is ruled out.

*What differs from AdaStop* (arXiv 2306.10882): that permutes runs, which assumes no distribution, and so cannot decide
with few of them. `docs/science/sequential.md` has the error rates, the power and the seeds of each choice.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from functools import cache, partial
from typing import Literal

import numpy as np

Spending = Literal["O'Brien-Fleming", "Pocock"]
WIDEST = 8.0
"""Where bounds are cut, in standard deviations: beyond it lies less than 1e-14."""
SMALLEST_LEVEL = 1e-9
"""The smallest sequential p value that is told from 0."""
NODES = 64


def spent(information: float, level: float, spending: Spending = "O'Brien-Fleming") -> float:
    """The level that may be spent until a share of the information, above 0 and at most 1."""
    from scipy import special

    if spending == "Pocock":
        return level * math.log1p((math.e - 1) * information)
    quantile = -float(special.ndtri(level / 4))
    return float(4 * special.ndtr(-quantile / math.sqrt(information)))


@cache
def nominal_levels(
    looks: tuple[int, ...], at_most: int, level: float, spending: Spending = "O'Brien-Fleming"
) -> tuple[float, ...]:
    """The two-sided level of each look, at these ascending numbers of seeds of `at_most`.

    Raises ValueError for looks that do not ascend to `at_most` at the most.
    """
    from scipy import optimize, special

    _require_looks(looks, at_most)
    nodes, weights = np.polynomial.legendre.leggauss(NODES)
    levels: list[float] = []
    before = 0.0
    place, density = np.zeros(1), np.ones(1)  # a Brownian motion begins at 0
    for seeds in looks:
        now = seeds / at_most
        deviation, root = math.sqrt(now - before), math.sqrt(now)
        probability = 1.0 - spent(now, level, spending)

        excess = partial(_stay_excess, place, density, deviation, root, probability)
        bound = WIDEST if excess(WIDEST) <= 0.0 else float(optimize.brentq(excess, 0.0, WIDEST))
        levels.append(float(2 * special.ndtr(-bound)))
        grid = nodes * bound * root
        steps = np.exp(-0.5 * ((grid[:, None] - place) / deviation) ** 2) / (deviation * math.sqrt(2 * math.pi))
        place, density = grid, weights * bound * root * (steps @ density)
        before = now
    return tuple(levels)


def _stay_excess(
    place: np.ndarray, density: np.ndarray, deviation: float, root: float, probability: float, bound: float
) -> float:
    """How much likelier than `probability` it is that the motion, with this density before, is within the bound now."""
    from scipy import special

    high, low = (bound * root - place) / deviation, (-bound * root - place) / deviation
    return float((density * (special.ndtr(high) - special.ndtr(low))).sum()) - probability


def sequential_p(p_values: Sequence[float], looks: Sequence[int], at_most: int) -> float:
    """The smallest level at which these looks, with one p value each, would have called a difference; at most 1."""

    def is_crossed(level: float) -> bool:
        bounds = nominal_levels(tuple(looks), at_most, level)
        return any(p <= bound for p, bound in zip(p_values, bounds, strict=True))

    low, high = math.log(SMALLEST_LEVEL), 0.0
    if is_crossed(SMALLEST_LEVEL):
        return SMALLEST_LEVEL
    if not is_crossed(1.0 - 1e-12):
        return 1.0
    while high - low > 1e-3:
        middle = (low + high) / 2
        low, high = (low, middle) if is_crossed(math.exp(middle)) else (middle, high)
    return min(1.0, math.exp(high))


def repeated_interval(value: float, error: float, freedom: float, nominal: float) -> tuple[float, float]:
    """The repeated interval of a difference at a look with this nominal level."""
    from scipy import special

    half = -float(special.stdtrit(freedom, nominal / 2)) * error
    return value - half, value + half


def looks_until(first: int, step: int, at_most: int) -> tuple[int, ...]:
    """The numbers of seeds at which is looked: `first`, every `step` more, and `at_most` in any case."""
    return (*range(first, at_most, step), at_most)


def _require_looks(looks: Sequence[int], at_most: int) -> None:
    ascending = all(one < other for one, other in itertools.pairwise(looks))
    if not looks or not ascending or looks[0] < 2 or looks[-1] > at_most:
        raise ValueError(f"looks must ascend from 2 seeds or more to at most {at_most}; found {list(looks)}")
