"""True advantages by replay of recorded trajectories, and how well an estimator's advantages agree with them.

    V(s)     = mean return of M continuations that begin in state s
    A_(i,t)  = V(s_(i,t+1)) - V(s_(i,t))        after the last turn V is the return that was recorded

The return of a continuation counts all rewards of its trajectory, including those of the recorded turns, which are the
same on both sides and cancel. The two means of a difference are over different samples, so A is unbiased for any M. A
state's mean is also used for the turn before it, so the errors of neighbouring turns have opposite sign; that biases
neither. The precision of A is known: the variance of a mean is its sample variance over M. `reliability` is the share
of the variance of A that is not such noise. Exactly right advantages would correlate with A by its square root. Their
slope is 1, since slopes are corrected for the noise (`Agreement.slope`).

Two turns are decisions in the same state where their episodes are the same, token for token, up to the reply. Among
those a rule's order can be held against the true one. Where two of them gave the same reply, what differs between their
advantages is chance: with e = c * rule - A, c the scale that suits the rule best, and j another turn that gave turn i's
reply in its state,

    bias^2   = mean of e_i e_j              variance = mean of e_i^2 - noise_i - bias^2

What such a pair shares, its group's baseline for one, counts as bias.

VinePPO (arXiv 2410.01679) values the states of a reasoning chain in the same way; here the values are the reference for
other rules.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from turnwise.data.arrays import TrajectoryArrays
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
    for index, (own_return, states) in enumerate(zip(returns, continued, strict=True)):
        for turn, replays in enumerate(states):
            if len(replays) < 2:
                raise CreditError(
                    f"a state must have at least 2 continuations; that before turn {turn} of trajectory {index} has "
                    f"{len(replays)}: leave its group out",
                    "TW-too-few-continuations",
                )
        values = [*(math.fsum(replays) / len(replays) for replays in states), own_return]
        errors = [*(statistics.variance(replays) / len(replays) for replays in states), 0.0]
        advantages.append([after - before for before, after in pairwise(values)])
        variances.append([before + after for before, after in pairwise(errors)])
    return Truth(advantages, variances)


@dataclass(frozen=True)
class Decisions:
    """Which turns of a batch of trajectories were decisions in the same state, and which of these gave the same reply.

    Equal numbers are equal states, and equal replies in equal states; one number per turn of each trajectory.
    """

    states: Sequence[Sequence[int]]
    replies: Sequence[Sequence[int]]

    @classmethod
    def of(cls, trajectories: TrajectoryArrays) -> Decisions:
        """The decisions of these trajectories: those of a task are in one state up to where their tokens differ."""
        numbers: dict[tuple[object, ...], int] = {}
        states, replies = [], []
        tokens = zip(trajectories.observation_tokens, trajectories.reply_tokens, strict=True)
        for group, turns in zip(trajectories.group.tolist(), np.diff(trajectories.offsets).tolist(), strict=True):
            before: object = ("task", group)
            for _ in range(turns):
                observed, replied = next(tokens)
                states.append(numbers.setdefault((before, tuple(observed)), len(numbers)))
                before = numbers.setdefault((states[-1], "reply", tuple(replied)), len(numbers))
                replies.append(before)
        rows = (trajectories.turn_rows(np.array(each, dtype=np.int64)) for each in (states, replies))
        return cls(*(row.tolist() for row in rows))


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
    rank_correlation: Interval | None = None
    """Spearman's correlation with A among the turns of one state, the mean over the states whose A differ. 0 in a state
    to whose turns the rule gives the same."""
    sign_errors: Interval | None = None
    """Share of the turns whose A is further from 0 than its own error to which the rule gives the other sign. A rule's
    0 counts half, as a coin's toss would."""
    bias: Interval | None = None
    """Root of bias^2, in units of the return: see the head of this module. None where no reply was given twice."""
    deviation: Interval | None = None
    """Root of the variance, in the same units."""


def agreement(
    advantages: Sequence[Sequence[float]], truth: Truth, group: Sequence[int], decisions: Decisions, *, seed: int
) -> Agreement:
    """How one rule's advantages, one number per turn, agree with the truth. `group` is the task of each trajectory."""
    turns = [_Turns.of(advantages, truth, group, decisions, turn) for turn in range(max(map(len, advantages)))]
    together = _Turns(*(np.concatenate(part) for part in zip(*map(astuple, turns), strict=True)))
    pairs = _Pairs.of(together)
    return Agreement(
        correlation=_task_interval(together, _correlations, seed),
        slope=_task_interval(together, _slopes, seed),
        error=_task_interval(together, _errors, seed),
        slopes=tuple(_task_interval(subset, _slopes, seed) for subset in turns),
        rank_correlation=_task_interval(_ranked_states(together), _mean_correlations, seed),
        sign_errors=_task_interval(together, _sign_errors, seed),
        bias=_task_interval(together, lambda weights, turns: np.sqrt(pairs.parts(weights, turns)[0]), seed),
        deviation=_task_interval(together, lambda weights, turns: np.sqrt(pairs.parts(weights, turns)[1]), seed),
    )


@dataclass(frozen=True)
class _Turns:
    """A subset of a batch's turns; every array has shape [turns]."""

    task: NDArray[np.int64]
    rule: Vector
    true: Vector
    noise: Vector
    """The error variance of `true`."""
    state: NDArray[np.int64]
    reply: NDArray[np.int64]

    @classmethod
    def of(
        cls, advantages: Sequence[Sequence[float]], truth: Truth, group: Sequence[int], decisions: Decisions, turn: int
    ) -> _Turns:
        """The turns with index `turn`, of all trajectories that reach it."""
        reaching = [index for index, row in enumerate(advantages) if turn < len(row)]
        rows = (advantages, truth.advantages, truth.variances, decisions.states, decisions.replies)
        parts = (np.array([row[index][turn] for index in reaching]) for row in rows)
        return cls(np.array([group[index] for index in reaching]), *parts)


@dataclass(frozen=True)
class _Pairs:
    """Of each turn, [turns], the other turns that gave its reply in its state."""

    repeated: NDArray[np.bool_]
    """Whether there are such turns."""
    rule: Vector
    """The mean of the rule's advantages over them; 0 where there are none."""
    true: Vector
    """The mean of the true advantages over them."""

    @classmethod
    def of(cls, turns: _Turns) -> _Pairs:
        _, member, counts = np.unique(turns.reply, return_inverse=True, return_counts=True)
        others = counts[member] - 1
        rule_means, true_means = (
            (np.bincount(member, values)[member] - values) / np.maximum(others, 1)
            for values in (turns.rule, turns.true)
        )
        return cls(others > 0, rule_means, true_means)

    def parts(self, weights: Vector, turns: _Turns) -> tuple[Vector, Vector]:
        """The squared bias and the variance in each sample, [samples] each; neither below 0."""
        scale, pair_weights = _scales(weights, turns)[:, None], weights * self.repeated
        errors = scale * turns.rule - turns.true
        other_errors = scale * self.rule - self.true
        squared_bias, squared = (
            ratio((pair_weights * values).sum(axis=1), pair_weights.sum(axis=1))
            for values in (errors * other_errors, errors**2 - turns.noise)
        )
        return np.maximum(squared_bias, 0.0), np.maximum(squared - squared_bias, 0.0)


def _ranked_states(turns: _Turns) -> _Turns:
    """One row per state whose true advantages differ: in `rule`, the rank correlation among its turns."""
    from scipy.stats import spearmanr

    first, correlations = [], []
    for state in np.unique(turns.state):
        rows = np.flatnonzero(turns.state == state)
        # Equal numbers that were added up in another order are ties.
        rule, truth = turns.rule[rows].round(12), turns.true[rows].round(12)
        if np.ptp(truth) == 0:
            continue
        first.append(rows[0])
        correlations.append(0.0 if np.ptp(rule) == 0 else float(spearmanr(rule, truth).statistic))
    one = _Turns(*(part[first] for part in astuple(turns)))
    return replace(one, rule=np.array(correlations, dtype=np.float64))


Measure = Callable[[Vector, _Turns], Vector]
"""A function from weights [samples, turns] and the turns to one number per sample, NaN where it is not defined."""


def _task_interval(turns: _Turns, measure: Measure, seed: int) -> Interval | None:
    """A measure with its bootstrap interval over tasks; None if it is not defined."""
    names, member = np.unique(turns.task, return_inverse=True)
    if not len(names):
        return None
    return bootstrap_interval(lambda weights: measure(weights[:, member], turns), len(names), seed)


def bootstrap_interval(measure: Callable[[Vector], Vector], count: int, seed: int) -> Interval | None:
    """A measure with its bootstrap interval over so many tasks or groups; None if it is not defined.

    `measure` maps weights, [samples, count], to one number per sample.
    """
    value = float(measure(np.ones((1, count)))[0])
    if not math.isfinite(value):
        return None
    draws = generator(seed, "bootstrap").multinomial(count, np.full(count, 1.0 / count), size=RESAMPLES)
    return percentile_interval(value, measure(draws.astype(np.float64)), count)


def percentile_interval(value: float, resamples: Vector, tasks: int) -> Interval:
    """A value with its percentile bootstrap interval; `resamples` has the measure of each resample, or NaN.

    There are no bounds if all resamples agree, or if the measure is undefined in more than 5 % of them: when few tasks
    have any signal, some resamples contain none of those. The bounds are widened to contain the value if needed, since
    percentiles of a measure that is not a mean may exclude it.
    """
    defined = resamples[np.isfinite(resamples)]
    if len(defined) < LEVEL * len(resamples) or np.ptp(defined) == 0:
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
    scaled = _scales(weights, turns)[:, None] * turns.rule
    return (weights * np.abs(scaled - turns.true)).sum(axis=1) / weights.sum(axis=1)


def _scales(weights: Vector, turns: _Turns) -> Vector:
    """The factor of the rule's advantages that minimises the squared difference from the truth."""
    return ratio(weights @ (turns.rule * turns.true), weights @ turns.rule**2)


def _mean_correlations(weights: Vector, states: _Turns) -> Vector:
    return _means(weights, states.rule)


def _sign_errors(weights: Vector, turns: _Turns) -> Vector:
    certain = np.abs(turns.true) > np.sqrt(turns.noise) + ROUNDING
    rule = np.where(np.abs(turns.rule) > ROUNDING, turns.rule, 0.0)
    return _means(weights * certain, (1.0 - np.sign(rule) * np.sign(turns.true)) / 2)


def _covariances(weights: Vector, one: Vector, other: Vector) -> Vector:
    return _means(weights, one * other) - _means(weights, one) * _means(weights, other)


def _means(weights: Vector, values: Vector) -> Vector:
    """The weighted mean of `values` [turns] in each sample, [samples]; NaN if a sample has none of the turns."""
    return ratio(weights @ values, weights.sum(axis=1))


def ratio(numerator: Vector, denominator: Vector) -> Vector:
    """The quotient; NaN where the denominator is 0 up to rounding (`ROUNDING`)."""
    defined = np.abs(denominator) > ROUNDING
    return np.divide(numerator, denominator, out=np.full_like(numerator, np.nan), where=defined)
