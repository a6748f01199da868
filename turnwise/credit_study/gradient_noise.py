"""Noise and direction of the policy gradient that a rule's advantages give, from the gradients of single groups.

The score vector S_(i,t) of a turn is the gradient of the log-probability of its reply
(`turnwise.policy.score_vectors`). The gradient of group g of G_g trajectories is

    g_g = 1 / G_g * sum over its trajectories i and their turns t of A_(i,t) S_(i,t)

and for n groups

    signal^2 = mean over pairs g, h of different groups of <g_g, g_h>
    variance = mean over the same pairs of |g_g - g_h|^2 / 2

The variance is the usual one, 1 / (n - 1) sum |g_g - mean|^2, summed over all dimensions; it contains differences
between tasks as well as between samples of one task. signal^2 is |mean|^2 minus the contribution of noise, variance /
n; it may be negative and then counts as 0. Both are written over pairs so that a bootstrap resample, in which a group
may occur twice, never compares a group with itself. Turns are summed and trajectories averaged, which gives the policy
gradient itself: a loss's normalisation by length is not part of the study.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from turnwise.credit_study.truth import bootstrap_interval, ratio
from turnwise.statistics import Interval

Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class GradientNoise:
    """Size, noise and direction of a rule's gradient. `norm` and `deviation` are in the rule's own scale."""

    norm: float
    """The norm of the mean gradient over groups."""
    deviation: float
    """The square root of the variance across groups."""
    signal_to_noise: Interval | None
    """Signal over deviation for one group; n groups have sqrt(n) times as much. None if the deviation is 0."""
    cosine: Interval | None
    """Cosine between the mean gradient and that of the true advantages on the same trajectories. None if either is 0,
    and for the truth itself."""


def group_gradients(advantages: Sequence[Sequence[float]], score_vectors: Matrix, group: Sequence[int]) -> Matrix:
    """The gradient of each group, [groups, dimensions], in ascending order of `group`.

    `score_vectors` has a row for each turn of each trajectory, in order: [turns, dimensions].
    """
    lengths = [len(row) for row in advantages]
    if sum(lengths) != len(score_vectors):
        raise ValueError(f"there must be a score vector per turn; found {len(score_vectors)} for {sum(lengths)} turns")
    names, trajectory_group = np.unique(np.asarray(group), return_inverse=True)
    turn_group = np.repeat(trajectory_group, lengths)
    weights = np.array([value for row in advantages for value in row]) / np.bincount(trajectory_group)[turn_group]
    share = np.zeros((len(names), len(score_vectors)))
    share[turn_group, np.arange(len(turn_group))] = weights
    return share @ np.asarray(score_vectors, dtype=np.float64)


def gradient_noise(gradients: Matrix, truth: Matrix | None, *, seed: int) -> GradientNoise:
    """Noise of a rule's group gradients, and the cosine of their mean with that of `truth`.

    Both arrays are [groups, dimensions]. Raises ValueError for fewer than two groups.
    """
    count = len(gradients)
    if count < 2:
        raise ValueError(f"a variance across groups needs at least 2 of them; found {count}")
    own = gradients @ gradients.T
    everything = np.ones((1, count))
    return GradientNoise(
        norm=float(np.linalg.norm(gradients.mean(axis=0))),
        deviation=math.sqrt(max(0.0, float(_over_pairs(everything, _half_squared_distances(own))[0]))),
        signal_to_noise=bootstrap_interval(lambda weights: _signal_to_noise(weights, own), count, seed),
        cosine=None
        if truth is None
        else bootstrap_interval(lambda weights: _cosines(weights, gradients, truth), count, seed),
    )


def _signal_to_noise(weights: Matrix, products: Matrix) -> Matrix:
    signal = np.sqrt(np.maximum(_over_pairs(weights, products), 0.0))
    return ratio(signal, np.sqrt(np.maximum(_over_pairs(weights, _half_squared_distances(products)), 0.0)))


def _cosines(weights: Matrix, gradients: Matrix, truth: Matrix) -> Matrix:
    """The cosine of the two weighted mean gradients, one per sample, from inner products alone."""
    cross, own, true = (
        ((weights @ (one @ other.T)) * weights).sum(axis=1)
        for one, other in ((gradients, truth), (gradients, gradients), (truth, truth))
    )
    return ratio(cross, np.sqrt(np.maximum(own * true, 0.0)))


def _half_squared_distances(products: Matrix) -> Matrix:
    squares = np.diag(products)
    return (squares[:, None] + squares[None, :]) / 2 - products


def _over_pairs(weights: Matrix, values: Matrix) -> Matrix:
    """The weighted mean of `values`, [groups, groups], over pairs of different groups, one per sample."""
    different = values - np.diag(np.diag(values))
    total = weights.sum(axis=1) ** 2 - (weights**2).sum(axis=1)
    return ratio(((weights @ different) * weights).sum(axis=1), total)
