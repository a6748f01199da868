"""The trajectories of the last rollout are read once, however many stages ask for them."""

from __future__ import annotations

import pytest
from stage_samples import saved, trajectory, turn

from tasks import restoring
from tasks.restoring import trajectories_of
from turnwise.data.trajectory import Ending, Trajectory
from turnwise.data.trajectory_files import read_trajectories
from turnwise.errors import ArtifactError
from turnwise.store import default_store

pytestmark = pytest.mark.usefixtures("turnwise_home")


def episodes(reward: float) -> list[Trajectory]:
    return [trajectory(0, replica, [turn({"goal": reward})], Ending.SUCCESS) for replica in range(2)]


def test_a_rollout_is_read_once_and_as_its_files_say() -> None:
    rollout, other = saved(episodes(1.0)), saved(episodes(0.5))
    reads = restoring._load_trajectories.cache_info().misses
    first = trajectories_of(rollout)
    assert trajectories_of(rollout) is first
    assert restoring._load_trajectories.cache_info().misses == reads + 1
    assert list(first) == read_trajectories(default_store().folder(rollout)) == episodes(1.0)
    assert list(trajectories_of(other)) == episodes(0.5)


def test_a_rollout_whose_files_are_damaged_is_refused_though_it_was_read_before() -> None:
    rollout = saved(episodes(1.0))
    trajectories_of(rollout)
    path = default_store().folder(rollout) / "turns.parquet"
    path.write_bytes(path.read_bytes() + b"more")
    with pytest.raises(ArtifactError):
        trajectories_of(rollout)
