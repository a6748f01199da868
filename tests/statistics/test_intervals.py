import math
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turnwise.seeding import generator
from turnwise.statistics import (
    Interval,
    average_at_k,
    bootstrap_over_tasks,
    mean_pass_at_k,
    over_tasks,
    pass_at_k,
    student_over_seeds,
    wilson,
)


def test_student_interval_of_three_seeds_worked_by_hand():
    # mean 0.6, deviations -0.1, 0, 0.1, s^2 = 0.02 / 2 = 0.01, s = 0.1; t(2, 0.975) = 4.302653;
    # half width = 4.302653 * 0.1 / sqrt(3) = 0.248414
    interval = student_over_seeds([0.5, 0.6, 0.7])
    assert interval.value == pytest.approx(0.6)
    assert interval.low == pytest.approx(0.6 - 0.248414, abs=1e-6)
    assert interval.high == pytest.approx(0.6 + 0.248414, abs=1e-6)
    assert (interval.over, interval.count, interval.level, interval.method) == ("seeds", 3, 0.95, "Student's t")
    assert interval.sample == (0.5, 0.6, 0.7)


def test_two_seeds_are_cut_to_the_range_of_a_share():
    # s = 0.1 / sqrt(2); t(1, 0.975) = 12.7062; half width = 12.7062 * 0.05 = 0.63531
    interval = student_over_seeds([0.4, 0.5], within=(0.0, 1.0))
    assert (interval.low, interval.high) == (0.0, 1.0)
    assert student_over_seeds([0.4, 0.5]).high == pytest.approx(0.45 + 0.63531, abs=1e-5)


def test_one_seed_has_no_interval_and_says_so():
    interval = student_over_seeds([0.7])
    assert (interval.value, interval.low, interval.high) == (0.7, None, None)
    assert interval.absence == "one seed: no interval"


def test_seeds_that_agree_exactly_claim_no_certainty():
    interval = student_over_seeds([0.1, 0.1, 0.1])
    assert (interval.value, interval.low, interval.high) == (0.1, None, None)
    assert interval.absence == "all 3 seeds are equal: no interval"


@pytest.mark.parametrize("seeds", [2, 3, 5, 10])
def test_the_student_interval_covers_the_truth_at_its_level(seeds):
    # 4,000 draws: the standard error of a coverage of 0.95 is 0.0034, so 0.0138 is four of them.
    draws = generator(7, "coverage", seeds).normal(0.6, 0.1, size=(4000, seeds))
    intervals = [student_over_seeds(draw) for draw in draws]
    coverage = np.mean([interval.low <= 0.6 <= interval.high for interval in intervals])
    assert abs(coverage - 0.95) < 0.0138


def test_cutting_to_the_possible_range_costs_no_coverage():
    draws = generator(8, "coverage").beta(8.0, 1.0, size=(2000, 3))
    for draw in draws:
        free, cut = student_over_seeds(draw), student_over_seeds(draw, within=(0.0, 1.0))
        assert (free.low <= 8 / 9 <= free.high) == (cut.low <= 8 / 9 <= cut.high)


def test_the_bootstrap_over_tasks_covers_the_truth_at_its_level():
    # 60 tasks, four replicas each: task difficulty varies, replicas are averaged first. 600 draws: four standard
    # errors are 0.036; the percentile bootstrap of 60 is known to fall a point short.
    random = generator(9, "coverage")
    covered = []
    for draw in range(600):
        difficulty = random.beta(2.0, 2.0, size=60)
        values = random.binomial(4, difficulty) / 4
        interval = bootstrap_over_tasks(values, seed=draw, resamples=500)
        covered.append(interval.low <= 0.5 <= interval.high)
    assert abs(np.mean(covered) - 0.95) < 0.036


def test_the_bootstrap_is_a_function_of_its_seed():
    values = [0.11, 0.23, 0.37, 0.53, 0.71, 0.97]
    assert bootstrap_over_tasks(values, seed=3) == bootstrap_over_tasks(values, seed=3)
    assert bootstrap_over_tasks(values, seed=3) != bootstrap_over_tasks(values, seed=4)


def test_the_bootstrap_of_two_values_worked_by_hand():
    # Resamples of {0, 1} have the mean 0, 1/2 or 1 with probability 1/4, 1/2, 1/4: the 2.5 % quantile is 0, the 97.5 %
    # one is 1, and the central 20 % all lie at 1/2.
    wide, narrow = bootstrap_over_tasks([0, 1], seed=1), bootstrap_over_tasks([0, 1], seed=1, level=0.2)
    assert (wide.value, wide.low, wide.high) == (0.5, 0.0, 1.0)
    assert (narrow.low, narrow.high) == (0.5, 0.5)
    assert (wide.over, wide.count, wide.method) == ("tasks", 2, "percentile bootstrap")


def test_one_task_has_no_interval():
    assert bootstrap_over_tasks([0.5], seed=1).absence == "one task: no interval"


def test_tasks_that_are_all_equal_claim_no_certainty():
    interval = bootstrap_over_tasks([2.0] * 40, seed=1)
    assert (interval.value, interval.low, interval.high) == (2.0, None, None)
    assert interval.absence == "all 40 tasks are equal: no interval"


def test_wilson_worked_by_hand():
    # z = 1.959964, z^2 = 3.841459. 8 of 10: centre (8 + 1.920729) / 13.841459 = 0.716740;
    # half width z / 13.841459 * sqrt(8 * 2 / 10 + 0.960365) = 0.226573
    interval = wilson(8, 10)
    assert interval.value == 0.8
    assert interval.low == pytest.approx(0.490167, abs=2e-5)
    assert interval.high == pytest.approx(0.943313, abs=2e-5)


def test_wilson_has_width_where_every_task_succeeds():
    # n of n: the lower bound is n / (n + z^2) = 100 / 103.841459 = 0.963007
    assert wilson(100, 100).low == pytest.approx(0.963007, abs=1e-6)
    assert wilson(100, 100).high == 1.0
    assert wilson(0, 100).high == pytest.approx(1 - 0.963007, abs=1e-6)


def test_the_interval_over_tasks_is_chosen_by_what_the_values_are():
    assert over_tasks([1.0] * 50, seed=1, proportion=True) == wilson(50, 50)
    assert over_tasks([1.0, 0.5, 0.0], seed=1, proportion=True).method == "percentile bootstrap"
    assert over_tasks([1.0, 0.0, 1.0], seed=1, proportion=False).method == "percentile bootstrap"


def test_pass_at_k_worked_by_hand():
    # c = 2 of n = 4, k = 2: the pairs without a success are 1 of 6.
    assert pass_at_k(2, 4, 2) == pytest.approx(5 / 6)
    assert pass_at_k(0, 4, 2) == 0.0
    assert pass_at_k(3, 4, 2) == 1.0
    # (5/6 + 0 + 1) / 3
    assert mean_pass_at_k([2, 0, 4], [4, 4, 4], 2) == pytest.approx(11 / 18)


@settings(max_examples=50)
@given(st.lists(st.booleans(), min_size=1, max_size=8), st.data())
def test_pass_at_k_is_the_share_of_subsets_that_hold_a_success(outcomes, data):
    k = data.draw(st.integers(1, len(outcomes)))
    subsets = list(combinations(outcomes, k))
    assert pass_at_k(sum(outcomes), len(outcomes), k) == pytest.approx(sum(map(any, subsets)) / len(subsets))


def test_average_at_k_worked_by_hand():
    # 3/4, 0/4, 4/4
    assert average_at_k([3, 0, 4], 4) == pytest.approx(7 / 12)
    assert average_at_k([3, 0, 4], 4) == pytest.approx(mean_pass_at_k([3, 0, 4], [4, 4, 4], 1))


@pytest.mark.parametrize("values", [[], [0.1, math.nan], [math.inf]])
def test_values_that_have_no_mean_are_refused(values):
    with pytest.raises(ValueError, match="finite numbers"):
        student_over_seeds(values)
    with pytest.raises(ValueError, match="finite numbers"):
        bootstrap_over_tasks(values, seed=1)


def test_counts_that_cannot_be_are_refused():
    for successes, samples, k in [(5, 4, 1), (-1, 4, 1), (2, 4, 5), (2, 4, 0)]:
        with pytest.raises(ValueError, match=r"must lie between|needs 1 <= k"):
            pass_at_k(successes, samples, k)
    with pytest.raises(ValueError, match="found 3 of 2"):
        wilson(3, 2)
    with pytest.raises(ValueError, match="found 3 of 2"):
        average_at_k([1, 3], 2)


def test_half_an_interval_is_refused():
    with pytest.raises(ValueError, match="both bounds or neither"):
        Interval(0.5, 0.4, None, "seeds", 3)
    with pytest.raises(ValueError, match="must not exceed"):
        Interval(0.5, 0.6, 0.4, "seeds", 3)
    with pytest.raises(ValueError, match="finite"):
        Interval(math.nan, None, None, "seeds", 3)
