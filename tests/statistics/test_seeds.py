import numpy as np
import pytest
from scipy import stats

from turnwise.seeding import generator
from turnwise.statistics import interquartile_mean_over_seeds, student_over_seeds
from turnwise.statistics.seeds import interquartile_mean_error, performance_profile


def test_the_interquartile_mean_leaves_a_collapsed_and_a_lucky_run_out() -> None:
    # Cut one of five at either end: (0.5 + 0.6 + 0.7) / 3 = 0.6. All five: mean 0.56, sum of squares 0.532,
    # s = 0.364692, s / sqrt(5) = 0.163095, more than that of the winsorised 0.5 0.5 0.6 0.7 0.7; t(4) = 2.776445.
    interval = interquartile_mean_over_seeds([0.0, 0.7, 0.6, 0.5, 1.0])
    assert interval.value == pytest.approx(0.6)
    assert interval.high == pytest.approx(0.6 + 2.776445 * 0.163095, abs=1e-5)
    assert interval.low == pytest.approx(0.6 - 2.776445 * 0.163095, abs=1e-5)
    assert interval.sample == (0.0, 0.7, 0.6, 0.5, 1.0)


def test_the_interquartile_mean_pays_for_the_runs_that_it_leaves_out() -> None:
    # s = s_w = 0.1: 0.1 / sqrt(5) * 5 / 3 = 0.074536 exceeds 0.1 / sqrt(5).
    assert float(interquartile_mean_error(np.array([0.5, 0.5, 0.6, 0.7, 0.7]))) == pytest.approx(0.074536, abs=1e-6)


def test_below_four_seeds_the_interquartile_mean_is_the_mean() -> None:
    ours, mean = interquartile_mean_over_seeds([0.2, 0.3, 0.7]), student_over_seeds([0.2, 0.3, 0.7])
    assert (ours.value, ours.low, ours.high) == pytest.approx((mean.value, mean.low, mean.high))


def test_one_seed_has_no_interquartile_interval() -> None:
    assert interquartile_mean_over_seeds([0.4]).absence == "one seed: no interval"


@pytest.mark.parametrize("seeds", [3, 5, 10])
def test_the_interquartile_interval_covers_the_middle_half_of_a_normal_population(seeds: int) -> None:
    # 4,000 draws: four standard errors of a coverage of 0.95 are 0.0138; conservative by a point at most.
    draws = generator(7, "interquartile", seeds).normal(0.6, 0.1, size=(4000, seeds))
    means = stats.trim_mean(draws, 0.25, axis=1)
    half = stats.t.ppf(0.975, seeds - 1) * interquartile_mean_error(draws)
    assert 0.936 < np.mean(abs(means - 0.6) <= half) < 0.975


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
    interval = student_over_seeds([(0.1 + 0.2 + 0.3) / 3, (0.3 + 0.2 + 0.1) / 3])
    assert interval.absence == "all 2 seeds are equal: no interval", "but for a rounding"


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


def test_a_profile_worked_by_hand() -> None:
    # Seed 1: 0.2, 0.4, 0.6, 0.8; seed 2: 0.6, 0.6, 0.8, 1. Above 0.5: 1/2 and 1; above 0.6: 1/4 and 1/2.
    scores = np.array([[0.2, 0.4, 0.6, 0.8], [0.6, 0.6, 0.8, 1.0]])
    profile = performance_profile(scores, [0.1, 0.5, 0.6, 1.0])
    assert [point.value for point in profile] == pytest.approx([1.0, 0.75, 0.375, 0.0])
    assert profile[1].sample == (0.5, 1.0)
    assert all(0 <= point.low <= point.high <= 1 for point in profile if point.low is not None)
    with pytest.raises(ValueError, match=r"\[seeds, tasks\]"):
        performance_profile(np.ones(3), [0.5])
