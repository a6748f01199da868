"""Means and deviations of credit, worked by hand, and what holds for any numbers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise.credit.group_relative import Deviation, against_others, normalise, scale
from turnwise.credit.reinforce import whitened
from turnwise.data.arrays import Ragged

numbers = st.lists(st.integers(-5000, 5000).map(lambda value: value / 1000), min_size=2, max_size=8)


@pytest.mark.parametrize(
    ("deviation", "expected"),
    # 1, 2, 6: mean 3, squares 4 + 1 + 9 = 14. Unbiased sqrt(14 / 2), population sqrt(14 / 3).
    [("unbiased", 7.0**0.5), ("population", (14 / 3) ** 0.5), ("none", 1.0)],
)
def test_the_deviation_is_that_which_is_asked_for(deviation: Deviation, expected: float) -> None:
    values = np.array([1.0, 2.0, 6.0])
    assert scale(values, deviation, 0.0) == pytest.approx(expected)
    assert normalise(values, deviation, 0.0).tolist() == pytest.approx([-2 / expected, -1 / expected, 3 / expected])


def test_epsilon_is_added_to_the_deviation_and_not_where_there_is_none() -> None:
    values = np.array([0.0, 2.0])
    assert scale(values, "population", 0.5) == pytest.approx(1.5)
    assert scale(values, "none", 0.5) == 1.0
    assert normalise(values, "population", 0.5).tolist() == pytest.approx([-1 / 1.5, 1 / 1.5])


def test_each_is_compared_with_the_mean_of_the_others() -> None:
    # 1 - (2 + 6) / 2, 2 - (1 + 6) / 2, 6 - (1 + 2) / 2
    assert against_others(np.array([1.0, 2.0, 6.0])).tolist() == pytest.approx([-3.0, -1.5, 4.5])


def test_equal_values_give_exactly_0_though_their_mean_is_rounded() -> None:
    equal = np.full(3, 0.1)
    for deviation in ("unbiased", "population", "none"):
        assert normalise(equal, deviation, 1e-8).tolist() == [0.0] * 3
    assert against_others(equal).tolist() == [0.0] * 3
    assert scale(equal, "unbiased", 1e-8) == 1.0


def test_one_value_has_no_baseline() -> None:
    with pytest.warns(UserWarning, match="no other to be compared with"):
        assert normalise([5.0], "unbiased", 1e-8).tolist() == [0.0]


def test_whitening_is_over_the_trained_entries_alone() -> None:
    values = Ragged.of([[1.0, 100.0], [3.0]])
    trained = Ragged.of([[True, False], [True]], bool)
    # Of 1 and 3 the mean is 2 and the unbiased deviation sqrt(2).
    assert whitened(values, trained, 0.0).tolist() == [
        [pytest.approx(-1 / 2**0.5), 0.0],
        [pytest.approx(1 / 2**0.5)],
    ]
    assert whitened(values, Ragged.of([[False, False], [False]], bool), 0.0).tolist() == [[0.0, 0.0], [0.0]]


@given(numbers, st.randoms(use_true_random=False))
def test_no_sum_depends_on_the_order_of_trajectories(values: list[float], random: object) -> None:
    order = list(range(len(values)))
    random.shuffle(order)  # type: ignore[attr-defined]
    for compare in (against_others, lambda found: normalise(found, "unbiased", 1e-8)):
        assert compare(np.array(values))[order].tolist() == compare(np.array(values)[order]).tolist()


@given(numbers)
def test_compared_values_sum_to_0_and_normalised_ones_have_deviation_1(values: list[float]) -> None:
    assert sum(against_others(np.array(values))) == pytest.approx(0.0, abs=1e-9)
    found = normalise(values, "unbiased", 0.0)
    assert sum(found) == pytest.approx(0.0, abs=1e-9)
    assert np.std(found, ddof=1) == (0.0 if len(set(values)) == 1 else pytest.approx(1.0))
