import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from turnwise.seeding import generator
from turnwise.statistics.pairs import (
    difference,
    difference_of_policies,
    difference_of_runs,
    two_sample_spread,
    two_way_spread,
)
from turnwise.statistics.significance import holm

SIMULATIONS = 1000
ALLOWED = 4 * (0.05 * 0.95 / SIMULATIONS) ** 0.5
"""Four standard errors of a share of 5 % among so many simulations."""


def test_a_pair_of_two_seeds_and_two_tasks_worked_by_hand() -> None:
    # d = 0.1 0.3 | 0.3 0.7, mean 0.35. Means of seeds 0.2, 0.5: A = 0.045 / 2. Means of tasks 0.2, 0.5: B = 0.045 / 2.
    # Residuals +-0.05: mean square 0.01, C = 0.01 / 4. V = 0.0225 + 0.0225 - 0.0025 = 0.0425, and
    # f = 0.0425^2 / (0.0225^2 + 0.0225^2 + 0.0025^2) = 1.773006.
    first, second = np.array([[0.6, 0.8], [0.9, 0.8]]), np.array([[0.5, 0.5], [0.6, 0.1]])
    spread = two_way_spread(first - second)
    assert float(spread.error) == pytest.approx(0.0425**0.5)
    assert float(spread.freedom) == pytest.approx(1.773006, abs=1e-6)
    found = difference(first, second, paired=True)
    assert found.interval.value == pytest.approx(0.35)
    assert found.interval.high == pytest.approx(0.35 + stats.t.ppf(0.975, 1.773006) * 0.0425**0.5, abs=1e-5)
    assert found.p == pytest.approx(2 * stats.t.sf(0.35 / 0.0425**0.5, 1.773006), abs=1e-6)
    assert (found.interval.over, found.interval.count) == ("seeds and tasks", 2)
    assert found.interval.sample == pytest.approx((0.2, 0.5))


def test_where_tasks_do_not_differ_seeds_of_their_own_are_compared_as_in_welchs_test() -> None:
    # Every task of a run shows the same, so that the tasks' part is 0 and the residual as well.
    one, other = np.array([0.5, 0.7, 0.6]), np.array([0.2, 0.3, 0.1, 0.25])
    found = difference(np.tile(one[:, None], 6), np.tile(other[:, None], 6), paired=False)
    welch = stats.ttest_ind(one, other, equal_var=False)
    assert found.p == pytest.approx(welch.pvalue)
    limits = welch.confidence_interval(0.95)
    assert (found.interval.low, found.interval.high) == pytest.approx((limits.low, limits.high))
    assert found.interval.count == 3, "the smaller side's"


def test_runs_on_different_tasks_are_compared_over_seeds_by_welchs_test_worked_by_hand() -> None:
    # Means 2 and 0.75. Squared errors 1 / 3 and 0.125 / 2, V = 0.395833, f = V^2 / ((1/3)^2 / 2 + 0.0625^2 / 1).
    found = difference_of_runs([1.0, 2.0, 3.0], [0.5, 1.0])
    half = stats.t.ppf(0.975, 2.635041) * 0.395833**0.5
    assert (found.interval.value, found.interval.count, found.interval.over) == (1.25, 2, "seeds")
    assert (found.interval.low, found.interval.high) == pytest.approx((1.25 - half, 1.25 + half), abs=1e-5)
    assert found.p == pytest.approx(2 * stats.t.sf(1.25 / 0.395833**0.5, 2.635041), abs=1e-6)


def test_one_run_on_a_side_and_runs_that_are_all_equal_have_a_difference_without_bounds() -> None:
    for first, second, value, p in (
        ([1.0], [0.25, 0.5, 0.75], 0.5, None),
        ([2.0], [2.0], 0.0, None),
        ([2.0, 2.0], [0.5, 0.5, 0.5], 1.5, 0.2),  # 2 of the 10 ways to deal five runs to the two sides
        ([2.0, 2.0], [2.0, 2.0], 0.0, 1.0),
        # The mean of three times 0.1 is off by its last bit, and so would be the deviation from it.
        ([0.1] * 3, [0.3] * 3, -0.2, 0.1),
        ([0.1] * 3, [0.1] * 2, 0.0, 1.0),
    ):
        found = difference_of_runs(first, second)
        assert (found.interval.value, found.interval.low, found.interval.high) == (pytest.approx(value), None, None)
        assert found.p == p
        in_tables = [np.tile(np.array(side)[:, None], 5) for side in (first, second)]
        assert difference(*in_tables, paired=False).p == p
    assert difference(np.ones((6, 4)), np.zeros((6, 4)), paired=True).p == 2 / 2**6
    assert difference(np.ones((6, 4)), np.zeros((1, 4)), paired=True).p == 2 / 2**6, "over a fixed policy"
    assert difference_of_policies([1.0] * 6, [0.0] * 6).p == 2 / 2**6
    assert difference_of_runs([2.0, 2.0], [1.0, 3.0]).interval.low is not None, "one side varies"


tables = st.integers(2, 4).flatmap(
    lambda seeds: st.lists(
        st.lists(st.floats(0, 1).map(lambda value: round(value, 3)), min_size=5, max_size=5),
        min_size=2 * seeds,
        max_size=2 * seeds,
    )
)


@settings(max_examples=50)
@given(tables, st.booleans())
def test_the_sides_are_alike_and_the_order_of_seeds_and_tasks_means_nothing(
    rows: list[list[float]], paired: bool
) -> None:
    first, second = np.array(rows[::2]), np.array(rows[1::2])
    here, there = (difference(*sides, paired=paired) for sides in ((first, second), (second, first)))
    turned = difference(first[::-1, ::-1], second[::-1, ::-1], paired=paired)
    assert here.interval.value == pytest.approx(-there.interval.value)
    assert (here.interval.low is None) == (there.interval.low is None) == (turned.interval.low is None)
    if here.interval.low is not None and here.p is not None:
        assert here.interval.low == pytest.approx(-there.interval.high) == pytest.approx(turned.interval.low)
        assert here.p == pytest.approx(there.p) == pytest.approx(turned.p)


def test_sides_that_are_the_same_are_not_told_apart_and_one_seed_decides_nothing() -> None:
    values = np.array([[0.1, 0.9], [0.4, 0.6]])
    same = difference(values, values, paired=True)
    assert (same.interval.value, same.interval.low, same.p) == (0.0, None, 1.0)
    one = difference(values[:1], values[1:], paired=True)
    assert (one.interval.absence, one.p) == ("one seed: no interval", None)


def test_tables_that_cannot_be_laid_beside_each_other_are_refused() -> None:
    with pytest.raises(ValueError, match="same tasks"):
        difference(np.ones((2, 3)), np.ones((2, 4)), paired=False)
    with pytest.raises(ValueError, match="a row for each seed"):
        difference(np.ones((3, 4)), np.ones((2, 4)), paired=True)
    with pytest.raises(ValueError, match="finite"):
        difference(np.full((2, 2), np.nan), np.ones((2, 2)), paired=True)


def alike(name: str, seeds: int, tasks: int, of_seeds: float, of_tasks: float, variants: int) -> np.ndarray:
    """Variants that are equally good on average, [variants, simulations, seeds, tasks]: four replicas of tasks whose
    difficulty varies; variants differ in the tasks that they favour, and runs in their luck.
    """
    random = generator(11, name, seeds)
    difficulty = random.normal(0.5, 1.2, (1, SIMULATIONS, 1, tasks))
    favoured = random.normal(0.0, of_tasks, (variants, SIMULATIONS, 1, tasks))
    luck = random.normal(0.0, of_seeds, (variants, SIMULATIONS, seeds, 1))
    return random.binomial(4, 1 / (1 + np.exp(-(difficulty + favoured + luck)))) / 4


def p_values(first: np.ndarray, second: np.ndarray, paired: bool) -> np.ndarray:
    spread = two_way_spread(first - second) if paired else two_sample_spread(first, second)
    means = first.mean(axis=(1, 2)) - second.mean(axis=(1, 2))
    return 2 * stats.t.sf(abs(means) / spread.error, spread.freedom)


@pytest.mark.parametrize("seeds", [3, 5, 10])
@pytest.mark.parametrize("paired", [True, False])
def test_variants_that_are_alike_are_called_different_as_often_as_the_level_says(seeds: int, paired: bool) -> None:
    for of_seeds, of_tasks in ((0.3, 0.0), (0.1, 1.0)):
        first, second = alike("alike", seeds, 40, of_seeds, of_tasks, variants=2)
        # With few seeds the interval is a little too wide rather than too narrow where tasks alone differ.
        assert 0.01 < (p_values(first, second, paired) < 0.05).mean() < 0.05 + ALLOWED


def test_among_all_pairs_of_four_that_are_alike_one_is_called_different_at_most_as_often_as_the_level_says() -> None:
    variants = alike("family", 5, 40, 0.2, 0.3, variants=4)
    pairs = [(one, other) for one in range(4) for other in range(one)]
    of_pairs = np.array([p_values(variants[one], variants[other], True) for one, other in pairs])
    corrected = np.array([holm(column) for column in of_pairs.T.tolist()])
    uncorrected = (of_pairs.min(axis=0) < 0.05).mean()
    assert (corrected.min(axis=1) < 0.05).mean() < 0.05 + ALLOWED < uncorrected


def test_two_policies_are_compared_over_tasks_by_the_paired_t_test() -> None:
    first, second = [1.0, 0.0, 1.0, 1.0, 0.5], [0.0, 0.0, 1.0, 0.5, 0.5]
    found, known = difference_of_policies(first, second), stats.ttest_rel(first, second)
    assert (found.interval.value, found.interval.over, found.interval.count) == (pytest.approx(0.3), "tasks", 5)
    assert found.p == pytest.approx(known.pvalue)
    limits = known.confidence_interval(0.95)
    assert (found.interval.low, found.interval.high) == pytest.approx((limits.low, limits.high))
    assert difference_of_policies([1.0], [0.0]).p is None
    with pytest.raises(ValueError, match="a number for each task; found 5 and 1"):
        difference_of_policies(first, [1.0])
