import numpy as np
import pytest
from scipy import stats

from turnwise.seeding import generator
from turnwise.statistics import (
    bootstrap_over_tasks,
    over_tasks,
    wilson,
)


def test_the_bootstrap_over_tasks_covers_the_truth_at_its_level():
    # 60 tasks, four replicas each: task difficulty varies, replicas are averaged first. 600 draws: four standard
    # errors are 0.036; the percentile bootstrap of 60 is known to fall a point short.
    random = generator(9, "coverage")
    covered = []
    for draw in range(600):
        difficulty = random.beta(2.0, 2.0, size=60)
        values = random.binomial(4, difficulty) / 4
        interval = bootstrap_over_tasks(values, seed=draw)
        covered.append(interval.low <= 0.5 <= interval.high)
    assert abs(np.mean(covered) - 0.95) < 0.036


def test_the_bootstrap_is_a_function_of_its_seed():
    values = [0.11, 0.23, 0.37, 0.53, 0.71, 0.97]
    assert bootstrap_over_tasks(values, seed=3) == bootstrap_over_tasks(values, seed=3)
    assert bootstrap_over_tasks(values, seed=3) != bootstrap_over_tasks(values, seed=4)


def test_the_bootstrap_of_two_values_worked_by_hand():
    # Resamples of {0, 1} have the mean 0, 1/2 or 1 with probability 1/4, 1/2, 1/4: the 2.5 % quantile is 0, the 97.5 %
    # one is 1.
    found = bootstrap_over_tasks([0, 1], seed=1)
    assert (found.value, found.low, found.high) == (0.5, 0.0, 1.0)
    assert (found.over, found.count, found.method) == ("tasks", 2, "percentile bootstrap")


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


@pytest.mark.parametrize("count", [2, 7, 60])
def test_the_bootstrap_and_wilson_are_scipys(count):
    values = generator(4, "values").random(count)
    theirs = stats.bootstrap(
        (values,), np.mean, n_resamples=2000, method="percentile", rng=generator(1, "bootstrap")
    ).confidence_interval
    ours = bootstrap_over_tasks(values, seed=1)
    assert (ours.low, ours.high) == pytest.approx((theirs.low, theirs.high), rel=1e-12)
    for successes in range(count + 1):
        bounds = stats.binomtest(successes, count).proportion_ci(method="wilson")
        found = wilson(successes, count)
        assert (found.low, found.high) == pytest.approx((bounds.low, bounds.high), rel=1e-12, abs=1e-15)


def test_tasks_that_are_equal_but_for_a_rounding_give_no_interval():
    interval = bootstrap_over_tasks([(0.1 + 0.2 + 0.3) / 3, (0.3 + 0.2 + 0.1) / 3], seed=0)
    assert interval.absence == "all 2 tasks are equal: no interval"
