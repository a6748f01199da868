"""Housekeeping of Prefect's list of runs: each process closes the runs that killed processes left as "Running".

    <home>/prefect/processes/<token>    locked by its process; the kernel releases the lock when the process dies

All flow runs of a process have its token as a tag. So the runs of a dead process are known, whatever server lists them;
runs of a live process, or runs that are not from this home, are never touched. Old runs are removed by the server
itself: see `flows.runtime.server_settings.REMOVAL_OF_OLD_RUNS`.
"""

from __future__ import annotations

import fcntl
import os
import uuid
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import IO

from prefect import tags
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import (
    FlowRunFilter,
    FlowRunFilterId,
    FlowRunFilterState,
    FlowRunFilterStateType,
    FlowRunFilterTags,
    TaskRunFilter,
    TaskRunFilterState,
    TaskRunFilterStateType,
)
from prefect.client.schemas.objects import FlowRun, State, StateType
from prefect.exceptions import ObjectNotFound
from prefect.states import Crashed

from turnwise.project import home

UNFINISHED = [StateType.PENDING, StateType.RUNNING, StateType.CANCELLING]
TOGETHER = 100
"""Number of processes whose runs are queried in one request."""

_PROCESS = "process "
_of_this_process = ExitStack()
"""Held until this process ends: its lock, and the tag of its flow runs."""
_own_tokens: set[str] = set()
"""A record lock does not keep out the process that holds it, which would take itself for dead."""


def mark_flow_runs() -> None:
    """Tag all flow runs of this process from here on with a token whose lock is released when the process ends."""
    folder = _folder()
    if any((folder / token).exists() for token in _own_tokens):
        return
    token = uuid.uuid4().hex
    folder.mkdir(parents=True, exist_ok=True)
    # Renamed only once it is locked: under its final name, an unlocked file would look like that of a dead process.
    unlocked = folder / f".{token}"
    lock = _of_this_process.enter_context(unlocked.open("w"))
    fcntl.lockf(lock, fcntl.LOCK_EX)
    os.rename(unlocked, folder / token)
    _own_tokens.add(token)
    _of_this_process.enter_context(tags(_tag(token)))


def close_abandoned_runs() -> int:
    """Set the flow runs that killed processes of this home left unfinished to Crashed; returns how many there were."""
    with ExitStack() as locks:
        others = [path for path in sorted(_folder().glob("[!.]*")) if path.name not in _own_tokens]
        dead = [path for path in others if _locked(path, locks)]
        closed = 0
        with get_client(sync_client=True) as client:
            for start in range(0, len(dead), TOGETHER):
                for run in _unfinished(client, [path.name for path in dead[start : start + TOGETHER]]):
                    _close(client, run)
                    closed += 1
        for path in dead:
            path.unlink(missing_ok=True)
    return closed


def _folder() -> Path:
    return home() / "prefect" / "processes"


def of_process(tag: str) -> bool:
    """Whether a tag says which process a flow run is of, and nothing that a reader would look for."""
    return tag.startswith(_PROCESS)


def _tag(token: str) -> str:
    return f"{_PROCESS}{token}"


def _locked(path: Path, locks: ExitStack) -> bool:
    """Whether the process of this token is gone. If so, its file stays locked until `locks` is closed."""
    lock: IO[str] | None = None
    with suppress(FileNotFoundError):
        lock = path.open("r+")
    if lock is None:
        return False
    try:
        # A flock lock would be shared with forked processes; a record lock belongs to one process alone.
        fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        lock.close()
        return False
    locks.enter_context(lock)
    return True


def _unfinished(client: SyncPrefectClient, tokens: Sequence[str]) -> list[FlowRun]:
    chosen = FlowRunFilter(
        tags=FlowRunFilterTags(any_=[_tag(token) for token in tokens]),
        state=FlowRunFilterState(type=FlowRunFilterStateType(any_=UNFINISHED)),
    )
    return client.read_flow_runs(flow_run_filter=chosen)


def _close(client: SyncPrefectClient, run: FlowRun) -> None:
    """Mark a flow run and its tasks as crashed; otherwise they would be listed as Running for ever."""
    crashed: State[None] = Crashed(message="The process that ran it was killed.")
    of_run = FlowRunFilter(id=FlowRunFilterId(any_=[run.id]))
    unfinished = TaskRunFilter(state=TaskRunFilterState(type=TaskRunFilterStateType(any_=UNFINISHED), name=None))
    with suppress(ObjectNotFound):  # the run has been deleted in the meantime
        for task_run in client.read_task_runs(flow_run_filter=of_run, task_run_filter=unfinished):
            client.set_task_run_state(task_run.id, crashed, force=True)
        client.set_flow_run_state(run.id, crashed, force=True)
