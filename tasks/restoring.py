"""Pruned files, made again by whoever needs them: a call of its own, which Prefect lists as a task run of its own.

Asking the store for files never computes: `Store.folder` returns what is there or raises. Who computes with the files
of a policy, a critic or a rollout opens it here. Models stay in memory between stages, and so do the trajectories of
the last rollout between those that read them.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from turnwise.data.trajectory import Trajectory
from turnwise.data.trajectory_files import read_trajectories
from turnwise.policy.models_in_memory import ModelsInMemory
from turnwise.store import Reference, default_store
from turnwise.store.artifacts import EVERYTHING
from turnwise.store.remaking import make_again
from turnwise.training_runs.observing import current_observers

RESTORE = "restore"
"""The name of the task run, and of what the progress display shows meanwhile."""


def opened(reference: Reference, needed: Sequence[str] = EVERYTHING) -> Path:
    """The folder of an artifact with the files that match a pattern of `needed`; pruned ones are made again first.

    Raises:
        ArtifactError: the artifact is missing or damaged, or a pruned file does not come out as it was.
    """
    store = default_store()
    store.folder(reference, needed=())  # locked from here on, where the caller is a stage
    if pruned_files := store.pruned(reference, needed):
        restore(reference, pruned_files)
    return store.folder(reference, needed)


def restore(reference: Reference, files: Sequence[str]) -> None:
    """Make these pruned files of an artifact again, by the stages that made them. Raises as `opened` does."""
    from tasks.caching import changed_since, recompute

    for observer in current_observers.get():
        observer.started(RESTORE, str(reference))

    def make() -> None:
        make_again(default_store(), reference, files, recompute, changed_since)

    context = sys.modules.get("prefect.context")
    if context is not None and (context.FlowRunContext.get() or context.TaskRunContext.get()):
        from prefect import Task
        from prefect.cache_policies import NO_CACHE

        Task(make, name=RESTORE, task_run_name=f"{RESTORE} {reference}", cache_policy=NO_CACHE, persist_result=False)()
    else:
        make()


MODELS = ModelsInMemory(opened)
"""The models of this process."""


def trajectories_of(rollout: Reference) -> tuple[Trajectory, ...]:
    """The trajectories of a rollout, read from the store unless it was the last one asked for.

    Raises ArtifactError as the store and `read_trajectories` do.
    """
    return _load_trajectories(opened(rollout))


# An artifact never changes under its digest. What the sampling itself has in memory is not used: a resumed run reads
# from files, and must read the same.
@lru_cache(maxsize=1)
def _load_trajectories(folder: Path) -> tuple[Trajectory, ...]:
    return tuple(read_trajectories(folder))
