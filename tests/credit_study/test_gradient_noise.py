"""The noise of a gradient across groups: numbers worked by hand, and what is unbiased."""

from __future__ import annotations

import math

import numpy as np
import pytest

from turnwise.credit_study.gradient_noise import gradient_noise, group_gradients


def test_a_groups_gradient_sums_over_turns_and_averages_over_trajectories() -> None:
    # Group 7 has two trajectories, of two turns and one: (2 * (1, 0) - 1 * (0, 1) + 4 * (1, 1)) / 2 = (3, 1.5).
    vectors = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [0.0, 2.0]])
    found = group_gradients([[2.0, -1.0], [4.0], [0.5]], vectors, [7, 7, 3])
    assert found.tolist() == [[0.0, 1.0], [3.0, 1.5]]  # ascending: group 3 first
    with pytest.raises(ValueError, match="a score vector per turn; found 4 for 3"):
        group_gradients([[2.0, -1.0], [4.0]], vectors, [7, 7])


def test_norm_deviation_and_signal_worked_by_hand() -> None:
    # (3, 0), (1, 0) and (2, 3): mean (2, 1), squared norm 5; squared distances from it 1 + 1, 1 + 1 and 0 + 4, variance
    # 8 / 2 = 4. Products of the pairs 3, 6 and 2: signal^2 = 11/3, which is 5 - 4/3.
    found = gradient_noise(np.array([[3.0, 0.0], [1.0, 0.0], [2.0, 3.0]]), None, seed=0)
    assert found.norm == pytest.approx(math.sqrt(5))
    assert found.deviation == pytest.approx(2.0)
    assert found.signal_to_noise is not None
    assert found.signal_to_noise.value == pytest.approx(math.sqrt(11 / 3) / 2)
    assert found.cosine is None


def test_the_cosine_is_that_of_the_means() -> None:
    gradients = np.array([[1.0, 1.0], [3.0, -1.0]])  # mean (2, 0)
    truth = np.array([[0.0, 2.0], [2.0, 0.0]])  # mean (1, 1)
    found = gradient_noise(gradients, truth, seed=0)
    assert found.cosine is not None and found.cosine.value == pytest.approx(math.sqrt(0.5))
    same = gradient_noise(gradients, 5 * gradients, seed=0)
    assert same.cosine is not None and same.cosine.value == pytest.approx(1.0)


def test_signal_to_noise_and_cosine_do_not_depend_on_the_scale() -> None:
    generator = np.random.default_rng(0)
    gradients, truth = generator.normal(1.0, 1.0, size=(2, 8, 20))
    one, other = (gradient_noise(scale * gradients, truth, seed=0) for scale in (1.0, 1000.0))
    assert one.signal_to_noise is not None and other.signal_to_noise is not None
    assert other.signal_to_noise.value == pytest.approx(one.signal_to_noise.value)
    assert one.cosine is not None and other.cosine is not None
    assert other.cosine.value == pytest.approx(one.cosine.value)
    assert other.norm == pytest.approx(1000 * one.norm)


def test_the_signal_leaves_out_what_noise_adds_to_the_mean() -> None:
    # Mean (0.5, 0, ...), noise of variance 100 in all: signal to noise 0.05, though the mean of 16 groups has a norm
    # of about 2.5 by noise alone.
    generator = np.random.default_rng(3)
    signal = np.zeros(400)
    signal[0] = 0.5
    pairs = []
    for _ in range(400):
        gradients = signal + generator.normal(0.0, 0.5, size=(16, 400))
        mean = gradients.mean(axis=0)
        variance = gradients.var(axis=0, ddof=1).sum()
        pairs.append(mean @ mean - variance / 16)
    assert np.mean(pairs) == pytest.approx(0.25, abs=5 * np.std(pairs) / 20)
    found = gradient_noise(gradients, None, seed=0)
    assert found.norm > 2.0
    assert found.signal_to_noise is not None
    assert found.signal_to_noise.value == pytest.approx(math.sqrt(max(0.0, pairs[-1]) / variance))


def test_without_any_gradient_nothing_is_defined() -> None:
    found = gradient_noise(np.zeros((4, 3)), np.ones((4, 3)), seed=0)
    assert (found.norm, found.deviation, found.signal_to_noise, found.cosine) == (0.0, 0.0, None, None)


def test_one_group_has_no_variance() -> None:
    with pytest.raises(ValueError, match="at least 2"):
        gradient_noise(np.ones((1, 3)), None, seed=0)


def test_an_interval_covers_the_value_of_more_groups() -> None:
    generator = np.random.default_rng(4)
    covered = 0
    for trial in range(40):
        gradients = 1.0 + generator.normal(0.0, 2.0, size=(24, 30))  # signal sqrt(30), deviation 2 sqrt(30)
        interval = gradient_noise(gradients, None, seed=trial).signal_to_noise
        assert interval is not None and interval.low is not None and interval.high is not None
        covered += interval.low <= 0.5 <= interval.high
    assert covered >= 34
