"""`BY_CONTENT`, Prefect's cache policy of every stage, and the options of `@task` that go with it.

A task's result is looked for under the digest of what it depends on (`tasks.caching`). Prefect writes what a task
returned to `<home>/results/<name>/<digest of the cache key>` and looks for it there (`turnwise.store.stage_records`).
If a record does not belong to its key, or its artifact is missing or damaged, the task runs again, with a warning. One
process computes a key at a time (`turnwise.store.exclusive`). Only infrastructure failures are retried: a bug or a
wrong configuration fails at once.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Literal

from prefect import Task
from prefect.cache_policies import CachePolicy
from prefect.client.schemas.objects import State, TaskRun
from prefect.context import TaskRunContext
from prefect.filesystems import LocalFileSystem, WritableFileSystem
from prefect.locking.protocol import LockManager
from prefect.results import ResultRecord, ResultRecordMetadata
from prefect.serializers import Serializer

from tasks.caching import dependencies_of, failed_lookup
from turnwise.errors import ArtifactError, WorldLost
from turnwise.store import Reference, default_store
from turnwise.store.exclusive import exclusive
from turnwise.store.stage_records import recorded, records_folder
from turnwise.training_runs.observing import StageCall, notify

logger = logging.getLogger(__name__)

_OUR_MISTAKES = (FileExistsError, FileNotFoundError, IsADirectoryError, NotADirectoryError, PermissionError)


class ByContent(CachePolicy):
    """A task's result is that of an earlier run with the same content: see `Dependencies.ingredients`."""

    def compute_key(
        self, task_ctx: TaskRunContext, inputs: dict[str, Any], flow_parameters: dict[str, Any], **kwargs: Any
    ) -> str | None:
        """The cache key of a call; None where it cannot be computed: the task then raises the error."""
        # Prefect takes for a task a folder that is fixed at import, or a storage that its server knows.
        task_ctx.result_store.result_storage = LocalFileSystem(basepath=str(records_folder()))
        failed_lookup.set(None)
        try:
            return dependencies_of(task_ctx.task).key(**inputs)
        except Exception as error:
            failed_lookup.set(error)
            return None


class Records(WritableFileSystem):
    """The records that can be trusted, as Prefect looks for them. It writes each to its folder, before its metadata."""

    _block_type_slug = "turnwise-records"

    def read_path(self, path: str, _sync: bool = True) -> bytes:  # type: ignore[override]
        """What Prefect notes of the record of a cache key. Raises FileNotFoundError where none can be used."""
        try:
            reference = recorded(path, default_store())
        except ArtifactError as error:
            context = TaskRunContext.get()
            logger.warning(
                "%s was computed before, but its result cannot be used; it is computed again. %s",
                path if context is None else context.task_run.name,
                error,
            )
            reference = None
        except Exception as error:
            failed_lookup.set(error)
            raise
        if reference is None:
            raise FileNotFoundError(path)
        # Where it lies now: a project may be moved or copied.
        return ResultRecordMetadata(
            storage_key=str(records_folder() / path), serializer=ReferenceSerializer()
        ).dump_bytes()

    def write_path(self, path: str, content: bytes, _sync: bool = True) -> None:  # type: ignore[override]
        """Nothing: the record itself says all, and its metadata follow from the key."""


class ReferenceSerializer(Serializer):
    """A record is the reference as JSON: nothing is pickled, and no class is named that would be imported."""

    type: Literal["turnwise-reference"] = "turnwise-reference"

    def dumps(self, obj: Any) -> bytes:
        """The reference as JSON. Prefect also keeps the exception of a failed run, which is never read: its text."""
        return (obj.model_dump_json() if isinstance(obj, Reference) else json.dumps(repr(obj))).encode()

    def loads(self, blob: bytes) -> Reference:
        """The reference. Raises pydantic's ValidationError for anything else."""
        return Reference.model_validate_json(blob)


class OneAtATime(LockManager):
    """`turnwise.store.exclusive` as Prefect's transactions lock: one process or thread of this home for a cache key."""

    def __init__(self) -> None:
        self._locks: dict[str, tuple[str, AbstractContextManager[None]]] = {}

    def acquire_lock(
        self, key: str, holder: str, acquire_timeout: float | None = None, hold_timeout: float | None = None
    ) -> bool:
        """Wait for the lock of a key, and take it."""
        lock = exclusive(key)
        lock.__enter__()
        self._locks[key] = holder, lock
        return True

    async def aacquire_lock(
        self, key: str, holder: str, acquire_timeout: float | None = None, hold_timeout: float | None = None
    ) -> bool:
        """The same for a task that is a coroutine, of which there is none."""
        return self.acquire_lock(key, holder)

    def release_lock(self, key: str, holder: str) -> None:
        """Give the lock of a key back."""
        _, lock = self._locks.pop(key)
        lock.__exit__(None, None, None)

    def is_locked(self, key: str) -> bool:
        """Whether this process holds the lock of a key."""
        return key in self._locks

    def is_lock_holder(self, key: str, holder: str) -> bool:
        """Whether this holder has the lock of a key."""
        return key in self._locks and self._locks[key][0] == holder

    def wait_for_lock(self, key: str, timeout: float | None = None) -> bool:
        """Wait until nobody has the lock of a key."""
        with exclusive(key):
            return True

    async def await_for_lock(self, key: str, timeout: float | None = None) -> bool:
        """The same for a task that is a coroutine, of which there is none."""
        return self.wait_for_lock(key)


def infrastructure_failed(task: Task[..., Any], task_run: TaskRun, state: State[Any]) -> bool:
    """Whether a retry can help: a lost world, a broken connection, a full disk; not a bug or a wrong parameter."""
    error = state.data
    return isinstance(error, WorldLost | OSError) and not isinstance(error, _OUR_MISTAKES)


def report_cached(task: Task[..., Any], task_run: TaskRun, state: State[Any]) -> None:
    """Notify the observers of a result that was found; of one that was computed, `depends_on` has."""
    context = TaskRunContext.get()
    if state.name != "Cached" or context is None or not isinstance(state.data, ResultRecord):
        return
    label = str(context.parameters.get("label", task.name))
    key = Path(str(state.data.metadata.storage_key)).relative_to(records_folder()).as_posix()
    notify(StageCall(task.name, label, state.data.result, True, task_run.total_run_time.total_seconds(), key))


BY_CONTENT = ByContent().configure(key_storage=Records(), lock_manager=OneAtATime(), isolation_level="SERIALIZABLE")
"""The cache policy of every stage."""

BY_CONTENT_OPTIONS: Mapping[str, Any] = {
    "cache_policy": BY_CONTENT,
    "persist_result": True,
    "result_serializer": ReferenceSerializer(),
    "cache_result_in_memory": False,
    "retry_condition_fn": infrastructure_failed,
    "retry_delay_seconds": 2.0,
    "on_completion": [report_cached],
}
"""The options of Prefect's `@task` that all stages share. A stage that is retried says how often."""
