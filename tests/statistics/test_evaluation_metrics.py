"""The metrics of an evaluation, worked by hand on four episodes of two tasks."""

from __future__ import annotations

from turnwise.data.trajectory import Ending, Trajectory
from turnwise.statistics.evaluation_metrics import evaluation_metrics
from turnwise.world import Task


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
