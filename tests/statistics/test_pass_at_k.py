from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turnwise.data.trajectory import Ending, Trajectory
from turnwise.statistics import (
    mean_pass_at_k,
    pass_at_k,
    wilson,
)
from turnwise.statistics.pass_at_k import evaluation_metrics
from turnwise.world import Task


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


def test_counts_that_cannot_be_are_refused():
    for successes, samples, k in [(5, 4, 1), (-1, 4, 1), (2, 4, 5), (2, 4, 0)]:
        with pytest.raises(ValueError, match=r"must lie between|needs 1 <= k"):
            pass_at_k(successes, samples, k)
    with pytest.raises(ValueError, match="found 3 of 2"):
        wilson(3, 2)


def episodes(task: str, *endings: Ending) -> list[Trajectory]:
    named = Task(world="w", id=task, split="test", seed=0, tags={})
    return [Trajectory(named, 0, replica, (), ending, "") for replica, ending in enumerate(endings)]


def test_means_and_pass_at_two_of_tasks_with_two_episodes_each() -> None:
    played = episodes("a", Ending.SUCCESS, Ending.TURN_LIMIT) + episodes("b", Ending.TURN_LIMIT, Ending.TURN_LIMIT)
    metrics = evaluation_metrics(played, 0, "success", frozenset())
    assert (metrics["success"], metrics["pass@2"]) == (0.25, 0.5)
    assert "pass@4" not in metrics


def test_a_task_with_a_lost_episode_leaves_pass_at_two_undefined() -> None:
    played = episodes("a", Ending.SUCCESS, Ending.SUCCESS) + episodes("b", Ending.TURN_LIMIT)
    metrics = evaluation_metrics(played, 1, "success", frozenset())
    assert "pass@2" not in metrics and metrics["ending/world_lost"] == 0.25


def test_no_episode_has_no_metrics() -> None:
    assert evaluation_metrics([], 3, "success", frozenset()) == {}
