"""The trajectories of one rollout, kept in memory between the stages of an iteration that read them."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from tasks.restoring import opened
from turnwise.data.trajectory import Trajectory
from turnwise.data.trajectory_files import read_trajectories
from turnwise.store import Reference


def trajectories_of(rollout: Reference) -> tuple[Trajectory, ...]:
    """The trajectories of a rollout, read from the store unless it was the last one asked for.

    Raises ArtifactError as the store and `read_trajectories` do.
    """
    return _read(opened(rollout))


# An artifact never changes under its digest. What the sampling itself has in memory is not used: a resumed run reads
# from files, and must read the same.
@lru_cache(maxsize=1)
def _read(folder: Path) -> tuple[Trajectory, ...]:
    return tuple(read_trajectories(folder))
