"""The truth by replay and a rule's agreement with it: numbers worked by hand, and what noise of measuring does."""

from __future__ import annotations

import numpy as np
import pytest

from turnwise.credit_study.truth import Truth, agreement, percentile_interval, replayed_truth
from turnwise.errors import CreditError

# Two trajectories. The first, of two turns, earned 1.2: from its first state continuations earned 0 and 1 (mean 0.5,
# variance 0.5, of the mean 0.25), from its second 0.2, 1.2 and 0.7 (mean 0.7, variance 0.25, of the mean 1/12). The
# second, of one turn, earned 0, where continuations earned 0, 1, 0 and 1 (mean 0.5, variance 1/3, of the mean 1/12).
RETURNS = [1.2, 0.0]
CONTINUED = [[[0.0, 1.0], [0.2, 1.2, 0.7]], [[0.0, 1.0, 0.0, 1.0]]]


def test_an_advantage_is_the_value_after_a_reply_minus_the_value_before_it() -> None:
    truth = replayed_truth(RETURNS, CONTINUED)
    assert truth.advantages == [pytest.approx([0.2, 0.5]), pytest.approx([-0.5])]
    assert truth.variances == [pytest.approx([0.25 + 1 / 12, 1 / 12]), pytest.approx([1 / 12])]


def test_the_advantages_of_a_trajectory_sum_to_its_return_minus_the_value_of_its_start() -> None:
    generator = np.random.default_rng(0)
    continued = [[generator.normal(size=3).tolist() for _ in range(4)] for _ in range(5)]
    returns = generator.normal(size=5).tolist()
    truth = replayed_truth(returns, continued)
    for row, earned, of_states in zip(truth.advantages, returns, continued, strict=True):
        assert sum(row) == pytest.approx(earned - np.mean(of_states[0]))


def test_reliability_is_the_share_of_the_variance_that_is_no_noise() -> None:
    # Advantages 0.2, 0.5, -0.5: mean 1/15, variance 0.18 - 1/225; mean noise (1/3 + 1/12 + 1/12) / 3 = 1/6.
    assert replayed_truth(RETURNS, CONTINUED).reliability == pytest.approx(1 - (1 / 6) / (0.18 - 1 / 225))
    assert Truth([[1.0], [-1.0]], [[0.0], [0.0]]).reliability == 1.0
    assert Truth([[0.1], [-0.1]], [[1.0], [1.0]]).reliability == 0.0
    assert Truth([[0.0], [0.0]], [[0.0], [0.0]]).reliability is None


def test_a_state_with_one_continuation_is_refused() -> None:
    with pytest.raises(CreditError, match="before turn 1 of trajectory 0 has 1"):
        replayed_truth([1.0], [[[0.0, 1.0], [0.5]]])


EXACT = Truth([[1.0, -1.0], [-1.0, 3.0], [0.0], [2.0, 0.0]], [[0.0, 0.0], [0.0, 0.0], [0.0], [0.0, 0.0]])
GROUPS = [0, 0, 1, 1]


def scaled(factors: tuple[float, ...]) -> list[list[float]]:
    return [[factor * value for factor, value in zip(factors, row, strict=False)] for row in EXACT.advantages]


def test_the_truth_itself_agrees_with_the_truth() -> None:
    found = agreement(EXACT.advantages, EXACT, GROUPS, seed=0)
    assert found.correlation is not None and found.correlation.value == pytest.approx(1.0)
    assert found.slope is not None and found.slope.value == pytest.approx(1.0)
    assert found.error is not None and found.error.value == pytest.approx(0.0)
    assert [slope and slope.value for slope in found.slopes] == pytest.approx([1.0, 1.0])


def test_a_rule_in_another_scale_has_another_slope_and_no_error() -> None:
    found = agreement(scaled((3.0, 3.0)), EXACT, GROUPS, seed=0)
    assert found.slope is not None and found.slope.value == pytest.approx(3.0)
    assert found.error is not None and found.error.value == pytest.approx(0.0)
    assert found.correlation is not None and found.correlation.value == pytest.approx(1.0)


def test_a_rule_that_passes_on_less_at_one_turn_shows_it_in_its_slopes() -> None:
    found = agreement(scaled((0.25, 1.0)), EXACT, GROUPS, seed=0)
    assert [slope and slope.value for slope in found.slopes] == pytest.approx([0.25, 1.0])
    assert found.correlation is not None and found.correlation.value < 0.99
    assert found.error is not None and found.error.value > 0.1


def test_the_numbers_of_a_rule_worked_by_hand() -> None:
    # True 1, -1, 3 and the rule's 2, 0, 1, one turn each; both have mean 1. Covariance (2 + 0 + 3) / 3 - 1 = 2/3,
    # variances 11/3 - 1 = 8/3 and 5/3 - 1 = 2/3: correlation (2/3) / (4/3) = 1/2, slope 1/4. The best scale is
    # 5/5 = 1, so that the differences are 1, 1 and -2: mean 4/3.
    found = agreement([[2.0], [0.0], [1.0]], Truth([[1.0], [-1.0], [3.0]], [[0.0]] * 3), [0, 1, 2], seed=0)
    assert found.correlation is not None and found.correlation.value == pytest.approx(0.5)
    assert found.slope is not None and found.slope.value == pytest.approx(0.25)
    assert found.error is not None and found.error.value == pytest.approx(4 / 3)


def test_a_rule_without_signal_has_no_correlation_and_a_slope_of_zero() -> None:
    found = agreement(scaled((0.0, 0.0)), EXACT, GROUPS, seed=0)
    assert found.correlation is None and found.error is None
    assert found.slope is not None and found.slope.value == 0.0


def test_noise_of_the_measurement_lowers_the_correlation_and_not_the_slope() -> None:
    # True advantages of variance 1 measured with noise of variance 1: reliability 1/2.
    generator = np.random.default_rng(1)
    true = generator.normal(size=(4000, 1))
    measured = Truth((true + generator.normal(size=true.shape)).tolist(), np.ones_like(true).tolist())
    found = agreement(true.tolist(), measured, list(range(4000)), seed=0)
    assert measured.reliability == pytest.approx(0.5, abs=0.03)
    assert found.correlation is not None and found.correlation.value == pytest.approx(0.5**0.5, abs=0.03)
    assert found.slope is not None and found.slope.value == pytest.approx(1.0, abs=0.05)


def test_a_turn_whose_truth_is_all_noise_has_no_slope() -> None:
    found = agreement([[1.0], [2.0]], Truth([[0.1], [0.2]], [[5.0], [5.0]]), [0, 1], seed=0)
    assert found.slope is None and found.slopes == (None,)


def test_intervals_are_over_tasks_and_the_same_for_the_same_seed() -> None:
    generator = np.random.default_rng(2)
    true = generator.normal(size=(60, 1))
    rule = (true + generator.normal(size=true.shape)).tolist()
    truth = Truth(true.tolist(), np.zeros_like(true).tolist())
    tasks = [index // 3 for index in range(60)]
    first, again, other = (agreement(rule, truth, tasks, seed=seed).slope for seed in (0, 0, 1))
    assert first is not None and first == again and first != other
    assert (first.over, first.count, first.method) == ("tasks", 20, "percentile bootstrap")
    assert first.low is not None and first.high is not None and first.low < first.value < first.high
    alike = agreement(rule, truth, [0] * 60, seed=0).slope
    assert alike is not None and alike.low is None  # one task: nothing varies


def test_an_interval_is_given_only_where_resamples_define_it() -> None:
    resampled = np.arange(100, dtype=np.float64)
    found = percentile_interval(50.0, resampled, 5)
    assert (found.low, found.high) == pytest.approx((2.475, 96.525))
    resampled[:10] = np.nan
    assert percentile_interval(50.0, resampled, 5).low is None
    assert percentile_interval(1.0, np.ones(100), 5).low is None
