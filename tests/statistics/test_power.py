"""The number of seeds that decides a difference is that of the textbook, and of a simulation."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from turnwise.statistics.power import MOST_SEEDS, POWER, power, seeds_to_correlate, seeds_to_decide, smallest_decided


def test_seeds_are_those_of_the_textbook() -> None:
    # Cohen 1988: a paired difference of half a deviation needs 34 pairs, of a whole one 10, at 0.05 and a power of 0.8.
    assert seeds_to_decide(0.5, 1.0, 0.05) == 34
    assert seeds_to_decide(1.0, 1.0, 0.05) == 10


def test_power_is_the_share_of_experiments_that_find_the_difference() -> None:
    draws = np.random.default_rng(0).normal(0.1, 0.08, (20_000, 5))
    found = stats.ttest_1samp(draws, 0.0, axis=1).pvalue < 0.01
    assert power(0.1, 0.08, 5, 0.01) == pytest.approx(float(found.mean()), abs=0.01)


def test_without_a_difference_it_is_found_on_one_side_in_half_of_the_cases_that_the_level_allows() -> None:
    assert power(0.0, 1.0, 7, 0.05) == pytest.approx(0.025)


@given(st.floats(0.01, 1.0), st.integers(3, 30), st.sampled_from((0.05, 0.005)))
def test_the_smallest_decided_difference_needs_just_these_seeds(deviation: float, seeds: int, level: float) -> None:
    difference = smallest_decided(deviation, seeds, level)
    assert power(difference, deviation, seeds, level) == pytest.approx(POWER)
    assert seeds_to_decide(difference * 1.001, deviation, level) == seeds


def test_no_difference_needs_more_seeds_than_there_are() -> None:
    assert seeds_to_decide(1e-6, 1.0, 0.05) is None
    assert power(1e-6, 1.0, MOST_SEEDS, 0.05) < POWER


@pytest.mark.parametrize(("seeds", "deviation"), [(1, 1.0), (5, 0.0), (5, math.nan)])
def test_what_has_no_power_is_refused(seeds: int, deviation: float) -> None:
    with pytest.raises(ValueError, match="seeds must be 2 or more, and the deviation above 0"):
        power(0.1, deviation, seeds, 0.05)


def test_the_pairs_that_find_a_correlation_are_those_of_fishers_transformation() -> None:
    # artanh 0.5 = 0.549306; ((1.959964 + 0.841621) / 0.549306)^2 + 3 = 29.01.
    assert seeds_to_correlate(0.5, 0.05) == seeds_to_correlate(-0.5, 0.05) == 30
    # artanh 0.9 = 1.472219: 3.62 + 3.
    assert seeds_to_correlate(0.9, 0.05) == 7
    assert seeds_to_correlate(0.0, 0.05) is None and seeds_to_correlate(0.01, 0.05) is None


def test_so_many_pairs_find_the_correlation_with_the_power_that_was_wanted() -> None:
    pairs = seeds_to_correlate(0.6, 0.01)
    assert pairs is not None
    generator = np.random.default_rng(0)
    x = generator.normal(size=(20_000, pairs))
    y = 0.6 * x + 0.8 * generator.normal(size=x.shape)
    x, y = (each - each.mean(axis=1, keepdims=True) for each in (x, y))
    r = (x * y).sum(axis=1) / np.sqrt((x**2).sum(axis=1) * (y**2).sum(axis=1))
    t = r * np.sqrt((pairs - 2) / (1 - r**2))
    # Fisher's transformation asks for a pair or two more than are needed.
    assert POWER - 0.01 < float((t > stats.t.ppf(0.995, pairs - 2)).mean()) < POWER + 0.04
