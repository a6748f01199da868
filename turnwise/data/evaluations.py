"""The episodes of an evaluation, read back from its artifact: a folder of trajectories per way of choosing replies."""

from __future__ import annotations

from turnwise.data.trajectory import Trajectory
from turnwise.data.trajectory_files import read_trajectories
from turnwise.store import Reference, default_store

GREEDY, SAMPLED = "greedy", "sampled"


def read_evaluation(reference: Reference, mode: str) -> list[Trajectory]:
    """The trajectories of an evaluation's `greedy` or `sampled` episodes; empty where it has none of that mode."""
    folder = default_store().folder(reference) / mode
    return read_trajectories(folder) if folder.is_dir() else []


def success_of(evaluation: Reference) -> float:
    """The mean success of an evaluation's sampled episodes."""
    return default_store().metrics(evaluation)[f"{SAMPLED}/success"]
