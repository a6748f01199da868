"""The truth by replay and a rule's agreement with it: numbers worked by hand, and what noise of measuring does."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise.credit_study.truth import Agreement, Decisions, Truth, agreement, percentile_interval, replayed_truth
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
    with pytest.raises(CreditError, match=r"\b1\b.*\b0\b.*TW-too-few-continuations"):
        replayed_truth([1.0], [[[0.0, 1.0], [0.5]]])


def compared(
    advantages: list[list[float]], truth: Truth, group: Sequence[int], *, replies: bool = False, seed: int = 0
) -> Agreement:
    """The agreement where the turns of one index of a task are in one state; `replies`: and gave the same reply."""
    states = [[100 * task + turn for turn in range(len(row))] for task, row in zip(group, advantages, strict=True)]
    ends = np.cumsum([len(row) for row in advantages])
    apart = [list(range(end - len(row), end)) for row, end in zip(advantages, ends.tolist(), strict=True)]
    return agreement(advantages, truth, group, Decisions(states, states if replies else apart), seed=seed)


EXACT = Truth([[1.0, -1.0], [-1.0, 3.0], [0.0], [2.0, 0.0]], [[0.0, 0.0], [0.0, 0.0], [0.0], [0.0, 0.0]])
GROUPS = [0, 0, 1, 1]


def scaled(factors: tuple[float, ...]) -> list[list[float]]:
    return [[factor * value for factor, value in zip(factors, row, strict=False)] for row in EXACT.advantages]


def test_the_truth_itself_agrees_with_the_truth() -> None:
    found = compared(EXACT.advantages, EXACT, GROUPS)
    assert found.correlation is not None and found.correlation.value == pytest.approx(1.0)
    assert found.slope is not None and found.slope.value == pytest.approx(1.0)
    assert found.error is not None and found.error.value == pytest.approx(0.0)
    assert [slope and slope.value for slope in found.slopes] == pytest.approx([1.0, 1.0])


def test_a_rule_in_another_scale_has_another_slope_and_no_error() -> None:
    found = compared(scaled((3.0, 3.0)), EXACT, GROUPS)
    assert found.slope is not None and found.slope.value == pytest.approx(3.0)
    assert found.error is not None and found.error.value == pytest.approx(0.0)
    assert found.correlation is not None and found.correlation.value == pytest.approx(1.0)


def test_a_rule_that_passes_on_less_at_one_turn_shows_it_in_its_slopes() -> None:
    found = compared(scaled((0.25, 1.0)), EXACT, GROUPS)
    assert [slope and slope.value for slope in found.slopes] == pytest.approx([0.25, 1.0])
    assert found.correlation is not None and found.correlation.value < 0.99
    assert found.error is not None and found.error.value > 0.1


def test_the_numbers_of_a_rule_worked_by_hand() -> None:
    # True 1, -1, 3 and the rule's 2, 0, 1, one turn each; both have mean 1. Covariance (2 + 0 + 3) / 3 - 1 = 2/3,
    # variances 11/3 - 1 = 8/3 and 5/3 - 1 = 2/3: correlation (2/3) / (4/3) = 1/2, slope 1/4. The best scale is
    # 5/5 = 1, so that the differences are 1, 1 and -2: mean 4/3.
    found = compared([[2.0], [0.0], [1.0]], Truth([[1.0], [-1.0], [3.0]], [[0.0]] * 3), [0, 1, 2])
    assert found.correlation is not None and found.correlation.value == pytest.approx(0.5)
    assert found.slope is not None and found.slope.value == pytest.approx(0.25)
    assert found.error is not None and found.error.value == pytest.approx(4 / 3)


def test_a_rule_without_signal_has_no_correlation_and_a_slope_of_zero() -> None:
    found = compared(scaled((0.0, 0.0)), EXACT, GROUPS)
    assert found.correlation is None and found.error is None
    assert found.slope is not None and found.slope.value == 0.0


def test_noise_of_the_measurement_lowers_the_correlation_and_not_the_slope() -> None:
    # True advantages of variance 1 measured with noise of variance 1: reliability 1/2.
    generator = np.random.default_rng(1)
    true = generator.normal(size=(4000, 1))
    measured = Truth((true + generator.normal(size=true.shape)).tolist(), np.ones_like(true).tolist())
    found = compared(true.tolist(), measured, list(range(4000)))
    assert measured.reliability == pytest.approx(0.5, abs=0.03)
    assert found.correlation is not None and found.correlation.value == pytest.approx(0.5**0.5, abs=0.03)
    assert found.slope is not None and found.slope.value == pytest.approx(1.0, abs=0.05)


def test_a_turn_whose_truth_is_all_noise_has_no_slope() -> None:
    found = compared([[1.0], [2.0]], Truth([[0.1], [0.2]], [[5.0], [5.0]]), [0, 1])
    assert found.slope is None and found.slopes == (None,)


def test_intervals_are_over_tasks_and_the_same_for_the_same_seed() -> None:
    generator = np.random.default_rng(2)
    true = generator.normal(size=(60, 1))
    rule = (true + generator.normal(size=true.shape)).tolist()
    truth = Truth(true.tolist(), np.zeros_like(true).tolist())
    tasks = [index // 3 for index in range(60)]
    first, again, other = (compared(rule, truth, tasks, seed=seed).slope for seed in (0, 0, 1))
    assert first is not None and first == again and first != other
    assert (first.over, first.count, first.method) == ("tasks", 20, "percentile bootstrap")
    assert first.low is not None and first.high is not None and first.low < first.value < first.high
    alike = compared(rule, truth, [0] * 60).slope
    assert alike is not None and alike.low is None  # one task: nothing varies


def test_an_interval_is_given_only_where_resamples_define_it() -> None:
    resampled = np.arange(100, dtype=np.float64)
    found = percentile_interval(50.0, resampled, 5)
    assert (found.low, found.high) == pytest.approx((2.475, 96.525))
    resampled[:10] = np.nan
    assert percentile_interval(50.0, resampled, 5).low is None
    assert percentile_interval(1.0, np.ones(100), 5).low is None


def test_ranks_are_compared_within_a_state_and_states_count_alike() -> None:
    # State 0: true 1, 2, 3 and the rule's 10, 30, 20: ranks 1, 3, 2, so that 1 - 6 * 2 / (3 * 8) = 1/2. State 1: true 0
    # and 1, the rule's -1 and -5: -1. State 2 has one true advantage, twice: it orders nothing. State 3: true 4 and 5,
    # to which the rule gives the same: 0.
    truth = Truth([[1.0], [2.0], [3.0], [0.0], [1.0], [7.0], [7.0], [4.0], [5.0]], [[0.0]] * 9)
    rule = [[10.0], [30.0], [20.0], [-1.0], [-5.0], [0.0], [9.0], [2.0], [2.0]]
    found = compared(rule, truth, [0, 0, 0, 1, 1, 2, 2, 3, 3]).rank_correlation
    assert found is not None and found.value == pytest.approx((0.5 - 1.0 + 0.0) / 3)
    assert (found.over, found.count) == ("tasks", 3)
    assert compared([[1.0], [2.0]], Truth([[0.5], [0.1]], [[0.0]] * 2), [0, 1]).rank_correlation is None


def test_sign_errors_are_counted_where_the_truth_is_certain_and_a_zero_is_half_a_one() -> None:
    # Errors of 0.2: the truth 0.1 is not certain. Of the other four the rule has two right, one wrong and gives one 0.
    truth = Truth([[1.0], [-1.0], [0.5], [-0.5], [0.1]], [[0.04]] * 5)
    found = compared([[2.0], [-0.1], [-3.0], [0.0], [-9.0]], truth, [0, 1, 2, 3, 4]).sign_errors
    assert found is not None and found.value == pytest.approx(1.5 / 4)


def test_bias_and_deviation_of_a_reply_that_was_given_twice_worked_by_hand() -> None:
    # One reply in one state, true 1 and 1. The rule's 2 and 0: the best scale is 2/4 = 1/2, so that the errors are 0
    # and -1. Their product is 0: no bias. Their mean square, 1/2, is the variance.
    found = compared([[2.0], [0.0]], Truth([[1.0], [1.0]], [[0.0]] * 2), [0, 0], replies=True)
    assert found.bias is not None and found.bias.value == 0.0
    assert found.deviation is not None and found.deviation.value == pytest.approx(0.5**0.5)
    # Two replies, of true 1 and 0, to which the rule always gives 1: scale 1/2, errors of -1/2 and 1/2 without chance.
    truth = Truth([[1.0], [1.0], [0.0], [0.0]], [[0.0]] * 4)
    found = compared([[1.0]] * 4, truth, [0, 0, 1, 1], replies=True)
    assert found.bias is not None and found.bias.value == pytest.approx(0.5)
    assert found.deviation is not None and found.deviation.value == 0.0
    never = compared([[1.0]] * 4, truth, [0, 0, 1, 1])
    assert (never.bias, never.deviation) == (None, None)  # no reply was given twice


def test_bias_and_deviation_are_those_of_a_rule_that_has_both() -> None:
    # Half of the true advantages +1, half -1, measured with noise of variance 1/4; the rule adds 0.5 to those of one
    # sort of reply, takes it from the other, and adds noise of deviation 0.3. It is orthogonal to the truth but for
    # that, so that the best scale is near 1.
    generator = np.random.default_rng(4)
    count = 3000
    true = np.repeat(generator.choice([-1.0, 1.0], count), 2)
    shift = np.repeat(generator.choice([-0.5, 0.5], count), 2)
    measured = true + generator.normal(0.0, 0.5, 2 * count)
    rule = true + shift + generator.normal(0.0, 0.3, 2 * count)
    scale = 1.0 / (1.0 + 0.25 + 0.09)
    truth = Truth(measured[:, None].tolist(), [[0.25]] * len(true))
    found = compared(rule[:, None].tolist(), truth, np.repeat(np.arange(count), 2).tolist(), replies=True)
    assert found.bias is not None and found.deviation is not None
    assert found.bias.value == pytest.approx(((scale - 1) ** 2 + (scale * 0.5) ** 2) ** 0.5, abs=0.03)
    assert found.deviation.value == pytest.approx(scale * 0.3, abs=0.03)


@given(
    rows=st.lists(st.lists(st.integers(-4, 4), min_size=1, max_size=3), min_size=2, max_size=8),
    factor=st.floats(0.1, 10.0),
    tasks=st.integers(1, 3),
)
def test_a_rule_that_equals_the_truth_ranks_and_signs_as_it_does_in_any_scale(
    rows: list[list[int]], factor: float, tasks: int
) -> None:
    true = [[float(value) for value in row] for row in rows]
    truth = Truth(true, [[0.0] * len(row) for row in rows])
    group = [index % tasks for index in range(len(rows))]
    same = [[factor * value for value in row] for row in true]
    found = compared(same, truth, group, replies=True)
    against = compared([[-value for value in row] for row in true], truth, group)
    assert found.rank_correlation is None or found.rank_correlation.value == pytest.approx(1.0)
    assert against.rank_correlation is None or against.rank_correlation.value == pytest.approx(-1.0)
    assert (found.rank_correlation is None) == (against.rank_correlation is None)
    if any(value for row in rows for value in row):
        assert found.sign_errors is not None and found.sign_errors.value == 0.0
        assert against.sign_errors is not None and against.sign_errors.value == 1.0
        silent = compared([[0.0] * len(row) for row in rows], truth, group)
        assert silent.sign_errors is not None and silent.sign_errors.value == 0.5
    for part in (found.bias, found.deviation):
        assert part is None or part.value == pytest.approx(0.0, abs=1e-6)
