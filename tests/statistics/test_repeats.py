"""Repeats: the answers of the equivalence test, worked by hand with tables of Student's t."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from turnwise.seeding import generator
from turnwise.statistics.repeats import compare_repeats
from turnwise.statistics.significance import equivalence_p

RECORDED = {1: 0.5, 2: 0.6, 3: 0.7}
CLOSE = {1: 0.51, 2: 0.6, 3: 0.72}
"""Differences of 0.01, 0 and 0.02: mean 0.01, deviation 0.01, standard error 0.01 / sqrt(3) = 0.0057735."""


def test_differences_that_are_surely_smaller_than_the_margin_are_within_it() -> None:
    found = compare_repeats(RECORDED, CLOSE, 0.05)
    assert found.answer == "within the margin" and found.further is None
    # t(0.95, 2) = 2.919986: 0.01 +- 0.016858, the interval of two one-sided tests of 5 %.
    shown = found.difference
    assert (shown.value, shown.low, shown.high) == pytest.approx((0.01, -0.006858, 0.026858), abs=1e-6)
    assert (shown.level, shown.over, shown.count) == (0.9, "seeds", 3)
    # The upper bound decides: a margin just below it holds it no more.
    assert compare_repeats(RECORDED, CLOSE, 0.026859).answer == "within the margin"
    assert compare_repeats(RECORDED, CLOSE, 0.026857).answer == "undecided"


def test_an_undecided_repetition_says_how_many_seeds_would_decide_it() -> None:
    # With 4 pairs (t(0.95, 3) + t(0.9, 3)) 0.01 / 2 = (2.35336 + 1.63774) 0.005 = 0.019956, with 3 pairs
    # (2.919986 + 1.885618) 0.0057735 = 0.027745.
    assert [compare_repeats(RECORDED, CLOSE, margin).further for margin in (0.02, 0.019956, 0.019955)] == [1, 1, 2]
    assert compare_repeats(RECORDED, CLOSE, 1e-6).further is None


def test_a_difference_that_is_found_and_not_within_the_margin_differs() -> None:
    worse = {1: 0.40, 2: 0.51, 3: 0.59}  # -0.1, -0.09, -0.11: far beyond t(0.975, 2) 0.0057735 = 0.0248
    assert compare_repeats(RECORDED, worse, 0.05).answer == "differs"
    assert compare_repeats(RECORDED, worse, 0.2).answer == "within the margin", "it differs, by too little to matter"


def test_of_a_run_repeated_alone_the_recorded_seeds_say_how_runs_vary() -> None:
    # Deviation 0.1 of the recorded, error 0.1 sqrt(1 + 1/3) = 0.115470, t(0.95, 2) of it 0.337171.
    found = compare_repeats(RECORDED, {2: 0.62}, 0.05)
    assert (found.answer, found.difference.value) == ("undecided", pytest.approx(0.02))
    assert found.difference.high == pytest.approx(0.02 + 0.337171, abs=1e-6)
    assert found.further is not None and found.further > 10
    assert compare_repeats(RECORDED, {2: 0.62}, 0.36).answer == "within the margin"
    assert compare_repeats(RECORDED, {2: 1.2}, 0.05).answer == "differs"  # 0.6 > t(0.975, 2) error = 0.4968


def test_one_recorded_seed_shows_nothing() -> None:
    found = compare_repeats({1: 0.5}, {1: 0.5}, 0.05)
    assert (found.answer, found.further, found.difference.low) == ("undecided", None, None)


@pytest.mark.parametrize("repeated", [{2: 0.52}, {2: 0.48}, {1: 0.52, 2: 0.52}])
def test_runs_that_do_not_vary_show_nothing_of_how_runs_vary(repeated: dict[int, float]) -> None:
    found = compare_repeats(dict.fromkeys((1, 2, 3), 0.5), repeated, 0.05)
    assert (found.answer, found.further, found.difference.low) == ("undecided", None, None)
    same = dict.fromkeys(repeated, 0.5)
    assert compare_repeats(dict.fromkeys((1, 2, 3), 0.5), same, 0.05).answer == "within the margin"


def test_equal_results_of_other_bits_are_within_any_margin() -> None:
    assert compare_repeats(RECORDED, dict(RECORDED), 1e-9).answer == "within the margin"


def test_the_p_is_that_of_two_one_sided_tests() -> None:
    sample = generator(3, "equivalence").normal(0.02, 0.03, 8)
    error = float(sample.std(ddof=1) / np.sqrt(8))
    below = stats.ttest_1samp(sample, -0.05, alternative="greater").pvalue
    above = stats.ttest_1samp(sample, 0.05, alternative="less").pvalue
    assert equivalence_p(float(sample.mean()), error, 7, 0.05) == pytest.approx(max(below, above))


@pytest.mark.parametrize(("value", "p"), [(0.0, 0.0), (-0.04, 0.0), (0.05, 1.0), (-0.05, 1.0), (0.2, 1.0)])
def test_a_difference_without_error_is_within_the_margin_or_not(value: float, p: float) -> None:
    assert equivalence_p(value, 0.0, 7, 0.05) == p


@pytest.mark.parametrize(
    ("repeated", "margin", "said"),
    [({1: 0.5}, 0.0, "margin must be above 0"), ({}, 0.1, "must be recorded ones"), ({9: 0.5}, 0.1, "found seeds")],
)
def test_what_cannot_be_compared_is_refused(repeated: dict[int, float], margin: float, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        compare_repeats(RECORDED, repeated, margin)


@given(st.lists(st.floats(-1, 1), min_size=2, max_size=6), st.floats(0.001, 1), st.floats(-1, 1))
def test_which_side_was_recorded_changes_no_answer(differences: list[float], margin: float, level: float) -> None:
    recorded = dict.fromkeys(range(len(differences)), level)
    repeated = {seed: level + each for seed, each in enumerate(differences)}
    one, other = compare_repeats(recorded, repeated, margin), compare_repeats(repeated, recorded, margin)
    assert (one.answer, one.further) == (other.answer, other.further)
    assert one.difference.value == -other.difference.value


def test_a_repetition_that_differs_by_the_margin_is_seldom_held_to_be_within_it() -> None:
    """2,000 repetitions with 5 seeds, off by exactly the margin: at most 5 % pass, within four standard errors."""
    noise = generator(5, "repeats").normal(0, 0.05, (2000, 5))
    recorded = dict.fromkeys(range(5), 0.0)
    passed = [
        compare_repeats(recorded, dict(enumerate(0.05 + row)), 0.05).answer == "within the margin" for row in noise
    ]
    assert 0.03 < np.mean(passed) < 0.05 + 4 * (0.05 * 0.95 / 2000) ** 0.5
