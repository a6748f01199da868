"""What Prefect's server is told of task runs: every state that lasts, in order, and the times of all."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

import pytest
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterId
from prefect.client.schemas.objects import StateType, TaskRun
from prefect.context import FlowRunContext
from pydantic import BaseModel, ConfigDict

from flows.runtime import reported_states
from flows.runtime.flow_runs import flow_run
from tasks.stage import stage
from turnwise.errors import WorldLost
from turnwise.store import Reference, default_store

pytestmark = pytest.mark.usefixtures("prefect_server", "turnwise_home")


class Parameters(BaseModel):
    model_config = ConfigDict(frozen=True)

    name: str


def write_name(name: str) -> Reference:
    with default_store().write("name") as draft:
        (draft.folder / "name.txt").write_text(name)
    return draft.reference


SECONDS = 0.1


@stage("short")
def short(parameters: Parameters) -> Reference:
    """A stage that takes a moment."""
    time.sleep(SECONDS)
    return write_name(parameters.name)


@stage("watched")
def watched(parameters: Parameters) -> Reference:
    """A stage that goes on until the server says that it is running."""
    (run,) = wait_for(this_flow_run(), StateType.RUNNING)
    assert run.start_time is not None and run.end_time is None
    return write_name(parameters.name)


tried: list[str] = []


@stage("failing", retries=1, retry_delay_seconds=0.1)
def failing(parameters: Parameters) -> Reference:
    """A stage that loses its world once, or always."""
    tried.append(parameters.name)
    if parameters.name == "always" or len(tried) == 1:
        raise WorldLost("the world is gone")
    return write_name(parameters.name)


def run_in_flow(call: Any) -> str:
    """Run a stage in a flow of its own, and return the flow run's id."""

    @flow_run("test", "test of states")
    def of_test() -> str:
        call()
        return this_flow_run()

    return of_test()


def this_flow_run() -> str:
    context = FlowRunContext.get()
    assert context is not None and context.flow_run is not None
    return str(context.flow_run.id)


def wait_for(flow_run: str, *states: StateType) -> list[TaskRun]:
    """The flow run's task runs, when they are in these states; the server learns of them a moment later."""
    chosen = FlowRunFilter(id=FlowRunFilterId(any_=[flow_run]))
    for _ in range(300):
        with get_client(sync_client=True) as client:
            runs = client.read_task_runs(flow_run_filter=chosen)
        if [run.state_type for run in runs] == list(states):
            return runs
        time.sleep(0.1)
    raise AssertionError(f"waited half a minute for {states}; the server has {runs}")


def states_of(run: TaskRun) -> list[str]:
    """The names of all states that the server knows of the task run, in order, when it knows the one that it is in.

    A busy server tells the state of a run before it has written the run's states.
    """
    for _ in range(300):
        with get_client(sync_client=True) as client:
            states = sorted(client.read_task_run_states(run.id), key=lambda state: state.timestamp)
        if states and states[-1].type == run.state_type:
            return [str(state.name) for state in states]
        time.sleep(0.1)
    raise AssertionError(f"waited half a minute for the state {run.state_type} of a run; the server has {states}")


def test_of_a_short_stage_only_the_end_is_reported_with_its_times(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reported_states, "SECONDS_UNREPORTED", 600.0)  # however busy the machine is
    (run,) = wait_for(run_in_flow(lambda: short(Parameters(name="a"))), StateType.COMPLETED)
    assert states_of(run) == ["Completed"]
    assert run.start_time is not None and run.end_time is not None and run.run_count == 1
    least = timedelta(seconds=SECONDS)
    assert run.total_run_time >= least and run.end_time - run.start_time >= least
    (cached,) = wait_for(run_in_flow(lambda: short(Parameters(name="a"))), StateType.COMPLETED)
    assert states_of(cached) == ["Cached"]


def test_a_stage_that_lasts_is_reported_as_running_while_it_runs() -> None:
    (run,) = wait_for(run_in_flow(lambda: watched(Parameters(name="b"))), StateType.COMPLETED)
    assert states_of(run) == ["Running", "Completed"]


def test_what_does_not_succeed_is_reported_in_full() -> None:
    (run,) = wait_for(run_in_flow(lambda: failing(Parameters(name="once"))), StateType.COMPLETED)
    assert states_of(run) == ["Running", "AwaitingRetry", "Retrying", "Completed"]
    failed: list[str] = []

    def fails() -> None:
        failed.append(this_flow_run())
        with pytest.raises(WorldLost):
            failing(Parameters(name="always"))

    run_in_flow(fails)
    (run,) = wait_for(failed[0], StateType.FAILED)
    assert states_of(run) == ["Running", "AwaitingRetry", "Retrying", "Failed"]
