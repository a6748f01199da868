"""Housekeeping of Prefect's list of runs: each process closes the runs that killed processes left as "Running".

All flow runs of a process have its token (`turnwise.store.process_register`) as a tag. So the runs of a dead process
are known, whatever server lists them; runs of a live process, or runs that are not from this home, are never touched.
Old runs are removed by the server itself: see `flows.runtime.server.REMOVAL_OF_OLD_RUNS`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

from prefect import tags
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import FlowRunFilter, TaskRunFilter
from prefect.client.schemas.objects import FlowRun, State, StateType
from prefect.exceptions import ObjectNotFound
from prefect.states import Crashed

from flows.runtime.server import connect_directly
from turnwise.project import one_project
from turnwise.store.process_register import ProcessRegister

UNFINISHED = {"type": {"any_": [StateType.PENDING, StateType.RUNNING, StateType.CANCELLING]}, "name": None}
"""The filter of states."""
TOGETHER = 100
"""Number of processes whose runs are queried in one request."""

_PROCESS = "process "
_process_tags = ExitStack()
"""Held until this process ends: the tag of its flow runs."""


def mark_flow_runs() -> None:
    """Tag all flow runs of this process from here on with a token whose lock is released when the process ends."""
    processes = ProcessRegister("prefect")
    if processes.own_token is None:
        _process_tags.enter_context(tags(f"{_PROCESS}{processes.enter()}"))


@contextmanager
def computing_for_another() -> Iterator[None]:
    """In a process that computes stages for another: they are tasks of the server of that one, and of its project."""
    connect_directly(os.environ.get("PREFECT_API_URL", ""))
    mark_flow_runs()
    with one_project():
        yield


def close_abandoned_runs() -> int:
    """Set the flow runs that killed processes of this home left unfinished to Crashed; returns how many there were."""
    closed = 0
    with ProcessRegister("prefect").ended() as ended_tokens, get_client(sync_client=True) as client:
        tokens = list(ended_tokens)
        for start in range(0, len(tokens), TOGETHER):
            processes = [f"{_PROCESS}{token}" for token in tokens[start : start + TOGETHER]]
            run_filter = FlowRunFilter.model_validate({"tags": {"any_": processes}, "state": UNFINISHED})
            for run in client.read_flow_runs(flow_run_filter=run_filter):
                _close(client, run)
                closed += 1
    return closed


def _close(client: SyncPrefectClient, run: FlowRun) -> None:
    """Mark a flow run and its tasks as crashed; otherwise they would be listed as Running for ever."""
    crashed: State[None] = Crashed(message="The process that ran it was killed.")
    run_filter = FlowRunFilter.model_validate({"id": {"any_": [run.id]}})
    unfinished = TaskRunFilter.model_validate({"state": UNFINISHED})
    with suppress(ObjectNotFound):  # the run has been deleted in the meantime
        for task_run in client.read_task_runs(flow_run_filter=run_filter, task_run_filter=unfinished):
            client.set_task_run_state(task_run.id, crashed, force=True)
        client.set_flow_run_state(run.id, crashed, force=True)
