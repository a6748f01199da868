import numpy as np
import pytest
from scipy import stats

from turnwise.seeding import generator
from turnwise.statistics import interquartile_mean_over_seeds, student_over_seeds
from turnwise.statistics.seeds import interquartile_mean_error


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
