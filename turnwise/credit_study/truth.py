"""True advantages by replay of recorded trajectories, and how well an estimator's advantages agree with them.

    V(s)     = mean return of M continuations that begin in state s
    A_(i,t)  = V(s_(i,t+1)) - V(s_(i,t))        after the last turn V is the return that was recorded

The return of a continuation counts all rewards of its trajectory, including those of the recorded turns, which are the
same on both sides and cancel. The two means of a difference are over different samples, so A is unbiased for any M. A
state's mean is also used for the turn before it, so the errors of neighbouring turns have opposite sign; that biases
neither. The precision of A is known: the variance of a mean is its sample variance over M. `reliability` is the share
of the variance of A that is not such noise. Exactly right advantages would correlate with A by its square root. Their
slope is 1, since slopes are corrected for the noise (`Agreement.slope`).

VinePPO (arXiv 2410.01679) values the states of a reasoning chain in the same way; here the values are the reference for
other rules.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from turnwise.errors import CreditError
from turnwise.seeding import generator
from turnwise.statistics import Interval

Vector = NDArray[np.float64]

RESAMPLES = 2000
LEVEL = 0.95
ROUNDING = 1e-12


@dataclass(frozen=True)
class Truth:
    """True advantages by replay: one row per trajectory, one number per turn."""

    advantages: list[list[float]]
    variances: list[list[float]]
    """The error variance of each advantage, from the spread of the continuations."""

    @property
    def reliability(self) -> float | None:
        """The share of the advantages' variance that is not measurement noise, 0 to 1; None if all are equal."""
        values = [value for row in self.advantages for value in row]
        variance = statistics.pvariance(values)
        noise = statistics.fmean(value for row in self.variances for value in row)
        return max(0.0, 1.0 - noise / variance) if variance else None


def replayed_truth(returns: Sequence[float], continued: Sequence[Sequence[Sequence[float]]]) -> Truth:
    """The true advantages of every turn of every trajectory.

    `returns[i]` is the return of trajectory i, `continued[i][t]` the returns of the continuations from the state before
    turn t. Raises CreditError for a state with fewer than two continuations, whose error cannot be estimated.
    """
    advantages, variances = [], []
    for index, (earned, of_turns) in enumerate(zip(returns, continued, strict=True)):
        for turn, of_state in enumerate(of_turns):
            if len(of_state) < 2:
                raise CreditError(
                    f"a state must have at least 2 continuations; that before turn {turn} of trajectory {index} has "
                    f"{len(of_state)}: leave its group out"
                )
        values = [*(math.fsum(of_state) / len(of_state) for of_state in of_turns), earned]
        errors = [*(statistics.variance(of_state) / len(of_state) for of_state in of_turns), 0.0]
        advantages.append([after - before for before, after in pairwise(values)])
        variances.append([before + after for before, after in pairwise(errors)])
    return Truth(advantages, variances)


@dataclass(frozen=True)
class Agreement:
    """How a rule's advantages agree with the true ones, over all turns; None for a number that is not defined.

    Intervals are percentile bootstraps over tasks.
    """

    correlation: Interval | None
    slope: Interval | None
    """Covariance of the rule's advantages with A, divided by the variance of A without its noise: how much of a true
    difference the rule passes on, in its own scale. None if A is all noise."""
    error: Interval | None
    """Mean absolute difference from the truth, in units of the return, after scaling the rule's advantages by the one
    factor that minimises the squared difference."""
    slopes: tuple[Interval | None, ...]
    """The slope for each turn index. Slopes that differ change the gradient's direction, equal ones only its length."""


def agreement(advantages: Sequence[Sequence[float]], truth: Truth, group: Sequence[int], *, seed: int) -> Agreement:
    """How one rule's advantages, one number per turn, agree with the truth. `group` is the task of each trajectory."""
    turns = [_Turns.of(advantages, truth, group, turn) for turn in range(max(map(len, advantages)))]
    together = _Turns(*(np.concatenate(part) for part in zip(*map(astuple, turns), strict=True)))
    return Agreement(
        correlation=_resampled(together, _correlations, seed),
        slope=_resampled(together, _slopes, seed),
        error=_resampled(together, _errors, seed),
        slopes=tuple(_resampled(of_turn, _slopes, seed) for of_turn in turns),
    )


@dataclass(frozen=True)
class _Turns:
    """A subset of a batch's turns; every array has shape [turns]."""

    task: NDArray[np.int64]
    rule: Vector
    true: Vector
    noise: Vector
    """The error variance of `true`."""

    @classmethod
    def of(cls, advantages: Sequence[Sequence[float]], truth: Truth, group: Sequence[int], turn: int) -> _Turns:
        """The turns with index `turn`, of all trajectories that reach it."""
        reaching = [index for index, of_turns in enumerate(advantages) if turn < len(of_turns)]
        of_rule, of_truth, of_noise = (
            np.array([rows[index][turn] for index in reaching])
            for rows in (advantages, truth.advantages, truth.variances)
        )
        return cls(np.array([group[index] for index in reaching]), of_rule, of_truth, of_noise)


Measure = Callable[[Vector, _Turns], Vector]
"""A function from weights [samples, turns] and the turns to one number per sample, NaN where it is not defined."""


def _resampled(turns: _Turns, measure: Measure, seed: int) -> Interval | None:
    """A measure with its bootstrap interval over tasks; None if it is not defined."""
    names, member = np.unique(turns.task, return_inverse=True)
    value = float(measure(np.ones((1, len(member))), turns)[0])
    if not math.isfinite(value):
        return None
    draws = generator(seed, "bootstrap").multinomial(len(names), np.full(len(names), 1.0 / len(names)), size=RESAMPLES)
    return percentile_interval(value, measure(draws[:, member].astype(np.float64), turns), len(names))


def percentile_interval(value: float, resampled: Vector, tasks: int) -> Interval:
    """A value with its percentile bootstrap interval; `resampled` has the measure of each resample, or NaN.

    There are no bounds if all resamples agree, or if the measure is undefined in more than 5 % of them: when few tasks
    have any signal, some resamples contain none of those. The bounds are widened to contain the value if needed, since
    percentiles of a measure that is not a mean may exclude it.
    """
    defined = resampled[np.isfinite(resampled)]
    if len(defined) < LEVEL * len(resampled) or np.ptp(defined) == 0:
        return Interval(value, None, None, "tasks", tasks, LEVEL)
    low, high = np.quantile(defined, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    bounds = min(float(low), value), max(float(high), value)
    return Interval(value, *bounds, "tasks", tasks, LEVEL, "percentile bootstrap")


def _correlations(weights: Vector, turns: _Turns) -> Vector:
    spread = _covariances(weights, turns.rule, turns.rule) * _covariances(weights, turns.true, turns.true)
    return ratio(_covariances(weights, turns.rule, turns.true), np.sqrt(np.maximum(spread, 0.0)))


def _slopes(weights: Vector, turns: _Turns) -> Vector:
    without_noise = _covariances(weights, turns.true, turns.true) - _means(weights, turns.noise)
    return ratio(_covariances(weights, turns.rule, turns.true), np.maximum(without_noise, 0.0))


def _errors(weights: Vector, turns: _Turns) -> Vector:
    scale = ratio(weights @ (turns.rule * turns.true), weights @ turns.rule**2)
    return (weights * np.abs(scale[:, None] * turns.rule - turns.true)).sum(axis=1) / weights.sum(axis=1)


def _covariances(weights: Vector, one: Vector, other: Vector) -> Vector:
    return _means(weights, one * other) - _means(weights, one) * _means(weights, other)


def _means(weights: Vector, values: Vector) -> Vector:
    """The weighted mean of `values` [turns] in each sample, [samples]; NaN if a sample has none of the turns."""
    return ratio(weights @ values, weights.sum(axis=1))


def ratio(numerator: Vector, denominator: Vector) -> Vector:
    """The quotient; NaN where the denominator is 0 up to rounding (`ROUNDING`)."""
    defined = np.abs(denominator) > ROUNDING
    return np.divide(numerator, denominator, out=np.full_like(numerator, np.nan), where=defined)
