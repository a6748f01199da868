"""The stage `study_episodes`: groups of episodes on the first validation tasks."""

from __future__ import annotations

from stage_samples import Small
from study_samples import played

from turnwise.data.metrics import episode_means
from turnwise.data.task_sets import tasks_of
from turnwise.data.trajectory_files import read_trajectories
from turnwise.store import default_store


def test_each_of_the_first_tasks_is_played_by_a_group(small: Small) -> None:
    episodes = read_trajectories(default_store().folder(played(small)))
    first = tasks_of(small.task_sets["validation"], "validation")[:3]
    assert [each.task for each in episodes] == [task for task in first for _ in range(2)]
    assert [(each.group, each.replica) for each in episodes] == [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1)]


def test_the_metrics_are_those_of_a_rollout(small: Small) -> None:
    reference = played(small)
    metrics = default_store().metrics(reference)
    for name, value in episode_means(read_trajectories(default_store().folder(reference))).items():
        assert metrics[name] == value
    assert metrics["lost_episodes"] == 0.0


def test_the_seed_decides(small: Small) -> None:
    assert played(small) == played(small) != played(small, seed=8)
