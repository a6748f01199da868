import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from turnwise.statistics.significance import (
    effect_size,
    exact_p,
    holm,
    probability_of_improvement,
    shaffer,
    smallest_exact_p,
)

scores = st.lists(st.integers(0, 8).map(lambda value: value / 8), min_size=2, max_size=5)


def test_the_effect_size_worked_by_hand() -> None:
    # Means 2 and 3, pooled deviation 1, 4 degrees of freedom: -1 * (1 - 3 / 15)
    assert effect_size([1, 2, 3], [2, 3, 4]) == pytest.approx(-0.8)
    # Means 4 and 1, pooled deviation sqrt(4 / 2), 2 degrees of freedom: 3 / sqrt 2 * (1 - 3 / 7)
    assert effect_size([3, 5], [0, 2]) == pytest.approx(1.212183, abs=1e-6)
    assert effect_size([1], [2, 3]) is None
    assert effect_size([1, 1], [2, 2]) is None
    assert effect_size([0.1] * 3, [0.3] * 3) is None, "though the mean of three times 0.1 is not 0.1"


def test_the_probability_of_improvement_worked_by_hand() -> None:
    # Of nine pairs of runs one is higher (3 > 2) and two are equal.
    assert probability_of_improvement([1, 2, 3], [2, 3, 4]) == pytest.approx(2 / 9)
    assert probability_of_improvement([0.5, 0.5], [0.5, 0.5]) == 0.5
    in_order, turned = (0.1 + 0.2 + 0.3) / 3, (0.3 + 0.2 + 0.1) / 3
    assert in_order > turned and probability_of_improvement([in_order], [turned]) == 0.5, "a rounding is no improvement"


@settings(max_examples=50)
@given(scores, scores)
def test_the_probability_of_improvement_is_that_of_all_pairs_of_runs(first: list[float], second: list[float]) -> None:
    pairs = [(one > other) + 0.5 * (one == other) for one, other in itertools.product(first, second)]
    assert probability_of_improvement(first, second) == pytest.approx(np.mean(pairs))


def test_five_pairs_cannot_show_more_than_one_in_sixteen() -> None:
    assert smallest_exact_p(5, 5, paired=True) == 0.0625
    assert exact_p([0.9, 0.8, 0.9, 0.7, 0.8], [0.1, 0.2, 0.3, 0.1, 0.2], paired=True) == pytest.approx(0.0625)


def test_runs_that_are_all_equal_do_not_differ_however_their_means_round() -> None:
    assert exact_p([0.125] * 2, [0.125] * 3, paired=False) == 1.0
    assert exact_p([0.1] * 3, [0.1] * 4, paired=False) == 1.0
    assert exact_p([0.1] * 5, [0.1] * 5, paired=True) == 1.0


def test_three_runs_against_three_others_cannot_show_more_than_one_in_ten() -> None:
    # 6 over 3 = 20 ways to choose who is on the first side; 2 of them are as extreme.
    assert smallest_exact_p(3, 3, paired=False) == pytest.approx(0.1)
    assert exact_p([0.7, 0.8, 0.9], [0.1, 0.2, 0.3], paired=False) == pytest.approx(0.1)


@settings(max_examples=50)
@given(scores.flatmap(lambda first: st.tuples(st.just(first), st.permutations(first))))
def test_the_exact_test_counts_the_ways_to_swap_each_pair(sides: tuple[list[float], list[float]]) -> None:
    differences = np.subtract(*sides)
    ways = np.array(list(itertools.product([-1, 1], repeat=len(differences)))) @ differences
    as_high, as_low = ((sign * ways >= sign * differences.sum() - 1e-9).mean() for sign in (1, -1))
    expected = min(1.0, 2 * min(as_high, as_low))
    assert exact_p(*sides, paired=True) == pytest.approx(expected)


@settings(max_examples=50)
@given(scores, scores, st.booleans())
def test_the_exact_test_is_scipys(first: list[float], second: list[float], paired: bool) -> None:
    if paired:
        first, second = first[: len(second)], second[: len(first)]
    # A sum of eighths is exact and orders the ways to swap as the difference of the means does, so that scipy, which
    # compares with a tolerance relative to what it found, counts no rounding.
    found = stats.permutation_test(
        (np.subtract(first, second),) if paired else (first, second),
        np.sum if paired else lambda one, other, axis: one.sum(axis=axis),
        permutation_type="samples" if paired else "independent",
        n_resamples=10_000,
    )
    assert exact_p(first, second, paired=paired) == pytest.approx(found.pvalue, abs=1e-12)


def test_with_too_many_ways_to_swap_p_is_estimated_and_near_that_of_the_normal_distribution() -> None:
    first, second = [0.5 + place / 40 for place in range(16)], [0.45 + place / 40 for place in range(16)]
    assert exact_p(first, second, paired=False) == pytest.approx(stats.ttest_ind(first, second).pvalue, abs=0.03)
    higher, crossed = [0.03 + each for each in first], [second[(3 * place) % 16] for place in range(16)]  # 2^16 ways
    assert exact_p(higher, crossed, paired=True) == pytest.approx(stats.ttest_rel(higher, crossed).pvalue, abs=0.02)


def test_holms_method_worked_by_hand() -> None:
    # 0.01 * 3, then 0.03 * 2 = 0.06, then 0.04 * 1, which may not fall below 0.06.
    assert holm([0.04, 0.01, None, 0.03]) == [pytest.approx(0.06), pytest.approx(0.03), None, pytest.approx(0.06)]
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    with pytest.raises(ValueError, match=r"between 0 and 1; found 1\.2"):
        holm([1.2])


@settings(max_examples=50)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_a_corrected_p_lies_between_the_uncorrected_one_and_that_times_the_number(p_values: list[float]) -> None:
    corrected = holm(p_values)
    for p, after in zip(p_values, corrected, strict=True):
        assert after is not None and p <= after <= min(1.0, p * len(p_values)) + 1e-12
    assert sorted(range(len(p_values)), key=lambda place: (p_values[place], corrected[place])) == sorted(
        range(len(p_values)), key=lambda place: (corrected[place], p_values[place])
    )


def test_shaffers_method_worked_by_hand() -> None:
    # Two groups: 0.01 and 0.02 are doubled, and with both rejected only the second group's can still be true.
    assert shaffer([[0.01, 0.02], [0.03]]) == [[pytest.approx(0.02), pytest.approx(0.04)], [pytest.approx(0.04)]]
    assert shaffer([[0.01, 0.9], [0.06]]) == [[pytest.approx(0.02), 0.9], [pytest.approx(0.12)]]
    with pytest.raises(ValueError, match=r"found 1\.2"):
        shaffer([[1.2]])


@given(st.lists(st.floats(0.0, 1.0), max_size=8))
def test_shaffers_method_is_holms_where_every_hypothesis_stands_alone(p_values: list[float]) -> None:
    assert [each for (each,) in shaffer([[p] for p in p_values])] == holm(p_values)


@given(st.lists(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=2), min_size=1, max_size=6))
def test_shaffers_method_lies_between_no_correction_and_bonferronis(groups: list[list[float]]) -> None:
    for values, corrected in zip(groups, shaffer(groups), strict=True):
        for p, after in zip(values, corrected, strict=True):
            assert p <= after <= min(1.0, p * len(groups)) + 1e-12
