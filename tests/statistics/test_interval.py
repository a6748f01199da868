import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise.statistics import Interval, bootstrap_over_tasks, student_over_seeds
from turnwise.statistics.interval import finite, mean


@pytest.mark.parametrize("values", [[], [0.1, math.nan], [math.inf]])
def test_values_that_have_no_mean_are_refused(values):
    with pytest.raises(ValueError, match="finite numbers"):
        student_over_seeds(values)
    with pytest.raises(ValueError, match="finite numbers"):
        bootstrap_over_tasks(values, seed=1)


def test_half_an_interval_is_refused():
    with pytest.raises(ValueError, match="both bounds or neither"):
        Interval(0.5, 0.4, None, "seeds", 3)
    with pytest.raises(ValueError, match="must not exceed"):
        Interval(0.5, 0.6, 0.4, "seeds", 3)
    with pytest.raises(ValueError, match="finite"):
        Interval(math.nan, None, None, "seeds", 3)
    with pytest.raises(ValueError, match="finite"):
        Interval(0.5, -math.inf, 0.6, "seeds", 3)
    with pytest.raises(ValueError, match="at least one of its tasks; found count=0"):
        Interval(0.5, None, None, "tasks", 0)


def test_an_interval_says_why_it_has_no_bounds() -> None:
    assert Interval(0.5, None, None, "seeds and tasks", 1).absence == "one seed: no interval"
    assert Interval(0.5, None, None, "tasks", 1).absence == "one task: no interval"
    assert Interval(0.5, None, None, "tasks", 7).absence == "all 7 tasks are equal: no interval"
    assert Interval(0.5, 0.4, 0.6, "tasks", 7).absence is None


def test_the_mean_of_equal_numbers_is_that_number_to_the_bit() -> None:
    # In binary three times 0.1 is not 0.3: summed and divided, the mean of three would be off by its last bit.
    assert sum([0.1] * 3) / 3 != 0.1
    assert mean([0.1] * 3) == 0.1
    assert mean(value for value in (1.0, 2.0, 6.0)) == 3.0
    with pytest.raises(ValueError, match="one value at least; found none"):
        mean([])


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=20))
def test_the_mean_lies_between_the_smallest_and_the_largest(values: list[float]) -> None:
    assert min(values) - 1e-9 <= mean(values) <= max(values) + 1e-9


def test_a_table_is_no_list_of_values() -> None:
    assert finite([1, 2], "tasks").dtype == np.float64
    with pytest.raises(ValueError, match="one per task"):
        finite(np.ones((2, 2)), "tasks")
    with pytest.raises(ValueError, match="one per seed"):
        finite([], "seeds")
