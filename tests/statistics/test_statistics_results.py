import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise.statistics import Interval, Results
from turnwise.statistics.results import common_tasks, normalised
from turnwise.statistics.seeds import student_over_seeds


def test_a_normalised_score_lies_between_random_and_oracle() -> None:
    # (0.6 - 0.2) / (1 - 0.2); bounds and seeds alike
    score = student_over_seeds([0.5, 0.7], within=(0.0, 1.0))
    found = normalised(score, random=0.2, oracle=1.0)
    assert found is not None
    assert (found.value, found.low, found.high) == pytest.approx((0.5, -0.25, 1.0))
    assert found.sample == pytest.approx((0.375, 0.625))
    assert normalised(score, random=0.5, oracle=0.5) is None


def test_a_task_that_one_run_lost_is_left_out_of_every_run() -> None:
    first = Results({1: {"a": 1.0, "b": 0.0, "c": 0.5}, 2: {"a": 0.5, "c": 0.5}})
    second = Results({1: {"c": 0.0, "a": 0.0, "d": 1.0}})
    assert common_tasks(first, second) == ["a", "c"]
    assert first.table(["a", "c"]).tolist() == [[1.0, 0.5], [0.5, 0.5]]


def test_results_without_a_run_or_a_task_are_refused() -> None:
    for runs in ({}, {1: {}}):
        with pytest.raises(ValueError, match="must hold a run at least"):
            Results(runs)


def test_the_mean_of_a_run_is_that_of_its_own_tasks_and_a_table_has_those_of_all() -> None:
    # Run 7: (1 + 0 + 0.5) / 3; run 2 has lost task b: (0.5 + 0.25) / 2. The order is that in which they were given.
    found = Results({7: {"a": 1.0, "b": 0.0, "c": 0.5}, 2: {"c": 0.25, "a": 0.5}})
    assert found.means == {7: pytest.approx(0.5), 2: pytest.approx(0.375)}
    assert list(found.means) == [7, 2]
    assert found.tasks == ["a", "c"]
    assert found.table(found.tasks).tolist() == [[1.0, 0.5], [0.5, 0.25]]
    assert found.table(["c", "a"], seeds=[2]).tolist() == [[0.25, 0.5]]
    assert found.table(found.tasks).dtype == np.float64


@given(st.floats(-1, 0.9), st.floats(0.01, 2), st.lists(st.floats(-1, 1), min_size=2, max_size=5))
def test_normalising_keeps_the_order_of_scores_and_maps_the_baselines_to_0_and_1(
    random: float, above: float, sample: list[float]
) -> None:
    oracle = random + above
    for value, place in ((random, 0.0), (oracle, 1.0)):
        found = normalised(Interval(value, None, None, "seeds", 1), random, oracle)
        assert found is not None and found.value == pytest.approx(place)
        assert (found.low, found.high) == (None, None)
    found = normalised(Interval(0.0, -1.0, 1.0, "seeds", len(sample), sample=tuple(sample)), random, oracle)
    assert found is not None and found.low is not None and found.high is not None
    assert found.low < found.value < found.high
    assert sorted(range(len(sample)), key=sample.__getitem__) == sorted(
        range(len(sample)), key=lambda place: (found.sample[place], sample[place])
    )
