"""A stage's call as a cached, retried Prefect task. Only a process that computes imports this, and Prefect with it.

A stage's task is made once, since making one takes a millisecond. What differs from call to call is its one argument.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from typing import Any

from prefect import Task
from prefect.client.schemas.objects import State, TaskRun
from prefect.context import TagsContext
from prefect.filesystems import LocalFileSystem

from tasks.prefect_records import records_folder
from turnwise.errors import WorldLost
from turnwise.store import Reference

current_stage: ContextVar[str | None] = ContextVar("stage", default=None)
"""The name of the stage that is called."""

_OUR_MISTAKES = (FileExistsError, FileNotFoundError, IsADirectoryError, NotADirectoryError, PermissionError)


class TaskCall:
    """One call of a stage. No data class, since Prefect would search its fields for results of other tasks."""

    def __init__(self, title: str, key: str, compute: Callable[[], Reference]) -> None:
        self.title = title
        """The name of its task run in Prefect's UI."""
        self.key = key
        """Its cache key."""
        self.compute = compute


class RecordsFolder(LocalFileSystem):
    """The folder in which Prefect writes the records, without the links in its path resolved for every access.

    Prefect resolves them five times a task, which takes longer than to read and write the record.
    """

    _block_type_slug = "turnwise-records"

    def _resolve_path(self, path: str) -> Path:
        return Path(str(self.basepath), path)


def run_as_task(
    function: Callable[..., Reference],
    call: TaskCall,
    *,
    name: str,
    recorded: bool,
    retries: int,
    retry_delay_seconds: float,
) -> Reference:
    """The result of a stage's call, computed or found by Prefect.

    Args:
        function: the stage's function, by whose name Prefect knows the task.
        call: the call.
        name: of the stage.
        recorded: whether a usable result is recorded under the call's key; else Prefect does not look for one.
        retries: how often an infrastructure failure is retried.
        retry_delay_seconds: before each retry.
    """
    task = _task(function, name, recorded, retries, retry_delay_seconds, records_folder())
    token = current_stage.set(name)
    try:
        # For each tag of a task, Prefect first requests a slot from its server: see `flows.runtime.reported_states`.
        with TagsContext(current_tags=set()):
            return Reference.model_validate(task(call))
    finally:
        current_stage.reset(token)


@cache
def _task(
    function: Callable[..., Reference],
    name: str,
    recorded: bool,
    retries: int,
    retry_delay_seconds: float,
    records: Path,
) -> Task[[TaskCall], dict[str, str]]:
    def compute(call: TaskCall) -> dict[str, str]:
        return call.compute().model_dump()

    compute.__name__, compute.__qualname__ = function.__name__, function.__qualname__
    compute.__module__, compute.__doc__ = function.__module__, function.__doc__
    task = Task(
        compute,
        name=name,
        task_run_name="{call.title}",
        cache_key_fn=lambda context, arguments: arguments["call"].key,
        refresh_cache=not recorded,
        result_storage=records,
        result_serializer="json",
        retries=retries,
        retry_delay_seconds=retry_delay_seconds,
        retry_condition_fn=_failed_by_infrastructure,
    )
    task.result_storage = RecordsFolder(basepath=str(records))
    return task


def _failed_by_infrastructure(task: Task[..., Any], task_run: TaskRun, state: State[Any]) -> bool:
    """Whether a retry can help: a lost world, a broken connection, a full disk; not a bug or a wrong parameter."""
    error = state.data
    return isinstance(error, WorldLost | OSError) and not isinstance(error, _OUR_MISTAKES)
