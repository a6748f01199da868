"""Flows that find all that they need in the store, and flows that must compute."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import threading
import time
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from prefect import task_engine
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import (
    FlowRunFilter,
    FlowRunFilterId,
    FlowRunFilterParentFlowRunId,
    FlowRunFilterTags,
)
from prefect.client.schemas.objects import FlowRun
from pydantic import BaseModel, ConfigDict

from flows.runtime.flow_runs import current_flow_run, flow_run, tags_of
from flows.workers.run_flow import in_own_flow_run
from tasks.stage import NotRecorded, recorded_only, stage
from turnwise.experiment import Experiment, load
from turnwise.store import Reference, default_store

pytestmark = pytest.mark.usefixtures("prefect_server", "turnwise_home")

NOBODY = "http://127.0.0.1:9/api"
"""Where no server listens."""


class Parameters(BaseModel):
    model_config = ConfigDict(frozen=True)

    number: int


computed: list[int] = []


@stage("counted")
def counted(parameters: Parameters) -> Reference:
    """A number, as an artifact."""
    computed.append(parameters.number)
    with default_store().write("number") as draft:
        (draft.folder / "number.json").write_text(json.dumps(parameters.number))
    return draft.reference


@flow_run("numbers", "numbers up to {most}")
def numbers(most: int) -> list[Reference]:
    """The numbers up to a largest one."""
    found = []
    for number in range(most):
        logging.getLogger(__name__).warning("number %d", number)
        found.append(counted(Parameters(number=number)))
    return found


def test_what_is_recorded_is_found_without_prefects_server(monkeypatch: pytest.MonkeyPatch) -> None:
    computed.clear()
    made = numbers.found_or_run(3)
    assert computed == [0, 1, 2]
    monkeypatch.setenv("PREFECT_API_URL", NOBODY)
    assert numbers.found_or_run(3) == made
    assert numbers.found_or_run(2) == made[:2]
    assert computed == [0, 1, 2]


@flow_run("squares", "squares up to {most}")
def squares(most: int, quiet: bool = False) -> list[Reference]:
    """The squares up to a largest one, announced unless it is to be quiet."""
    return [counted(Parameters(number=number**2)) for number in range(most)]


def test_a_log_says_what_is_waited_for_unless_it_is_quiet_or_all_is_found(capsys: pytest.CaptureFixture[str]) -> None:
    said = []
    for most, quiet in ((1, True), (3, False), (3, False)):
        squares.found_or_run(most, quiet=quiet)
        said.append(capsys.readouterr().out)
    assert said[0] == said[2] == ""
    (line,) = said[1].splitlines()
    assert line.startswith("starting the local Prefect server and loading the libraries")


def test_each_warning_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    for most, said in ((2, ["number 0", "number 1"]), (2, ["number 0", "number 1"]), (3, ["number 2"])):
        caplog.clear()
        numbers.found_or_run(most)
        found = [record.message for record in caplog.records if record.name == __name__]
        assert len(found) == most and found[-len(said) :] == said


@flow_run("overheard", "overheard")
def overheard(most: int) -> list[Reference]:
    """Some numbers, while another thread has something to say."""
    another = threading.Thread(target=logging.getLogger("another").warning, args=("from another thread",))
    another.start()
    another.join()
    return [counted(Parameters(number=number + 100)) for number in range(most)]


def test_what_another_thread_logs_is_logged_whether_all_is_found_or_not(caplog: pytest.LogCaptureFixture) -> None:
    filters = {handler: list(handler.filters) for handler in logging.getLogger().handlers}
    for passes in (2, 1):  # nothing is recorded at first, so the flow's function runs twice
        caplog.clear()
        overheard.found_or_run(2)
        assert [record.message for record in caplog.records if record.name == "another"] == (
            ["from another thread"] * passes
        )
    assert {handler: list(handler.filters) for handler in logging.getLogger().handlers} == filters


@flow_run("DVC stage", "a stage")
def tagged(stage: str, experiment: Experiment, variant: str | None, seed: int | None) -> set[str]:
    """The tags of its own flow run."""
    from prefect import runtime

    return set(runtime.flow_run.tags)


def test_a_flow_run_is_tagged_with_what_it_is_of() -> None:
    experiment = load(Path(__file__).parents[2] / "params.yaml", settings={"ablation.name": "mine"})
    expected = {"ablation mine", "world search", "stage train", "variant mt-grpo", "seed 2"}
    assert expected <= tagged("train", experiment, "mt-grpo", seed=2)
    assert tags_of({"stage": "report", "experiment": experiment, "variant": None, "seed": None}) == [
        "ablation mine",
        "world search",
        "stage report",
    ]
    assert tags_of({"most": 3}) == []


def flow_runs_of(*tags: str) -> list[FlowRun]:
    """The flow runs that the server lists under all of these tags, by name."""
    chosen = FlowRunFilter(tags=FlowRunFilterTags(all_=list(tags)))
    with get_client(sync_client=True) as client:
        return sorted(client.read_flow_runs(flow_run_filter=chosen), key=lambda run: run.name)


def tags_by_task_run(flow_run: FlowRun, number: int) -> dict[str, set[str]]:
    """The tags of so many task runs of a flow run; the server learns of them a moment later."""
    chosen = FlowRunFilter(id=FlowRunFilterId(any_=[flow_run.id]))
    for _ in range(300):
        with get_client(sync_client=True) as client:
            found = client.read_task_runs(flow_run_filter=chosen)
        if len(found) == number:
            return {run.name: set(run.tags) for run in found}
        time.sleep(0.1)
    raise AssertionError(f"the server must list {number} task runs; it lists {found}")


def test_the_runs_of_an_ablation_are_found_by_tag_as_parts_of_its_flow_run_whoever_makes_them() -> None:
    mine = load(Path(__file__).parents[2] / "params.yaml", settings={"ablation.name": "found-by-tag"})
    ids: list[str | None] = []

    @flow_run("comparison", "whole")
    def whole(experiment: Experiment) -> None:
        ids.append(current_flow_run())
        for seed in (1, 2):
            in_own_flow_run(experiment, "mt-grpo", seed, lambda: counted(Parameters(number=10)))

    whole(mine)
    # As a worker does, which is another process.
    in_own_flow_run(mine, "grpo-or", 1, lambda: counted.named("one")(Parameters(number=11)), within=ids[0])
    whole_run, *runs = sorted(flow_runs_of("ablation found-by-tag"), key=lambda run: run.name != "whole")
    assert str(whole_run.id) == ids[0] and current_flow_run() is None
    assert [run.name for run in runs] == ["grpo-or seed 1", "mt-grpo seed 1", "mt-grpo seed 2"]
    with get_client(sync_client=True) as client:
        parts = FlowRunFilter(parent_flow_run_id=FlowRunFilterParentFlowRunId(any_=[whole_run.id]))
        assert {run.id for run in client.read_flow_runs(flow_run_filter=parts)} == {run.id for run in runs}
    assert [run.name for run in flow_runs_of("ablation found-by-tag", "variant mt-grpo", "seed 2")] == [runs[2].name]
    of_run = {"ablation found-by-tag", "world search", "variant grpo-or", "seed 1"}
    assert tags_by_task_run(runs[0], 1) == {"one: counted": {*of_run, "stage counted"}}
    assert tags_by_task_run(runs[2], 1)["counted"] >= {"variant mt-grpo", "seed 2", "stage counted"}


def test_a_task_run_asks_for_no_slot_by_its_tags(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []
    before = task_engine._concurrency

    def asks(names: list[str], **options: object) -> AbstractContextManager[None]:
        asked.append(names)
        return before(names, **options)

    monkeypatch.setattr(task_engine, "_concurrency", asks)
    numbers(3)
    assert asked == 3 * [[]]


def test_within_recorded_only_nothing_is_computed_and_a_damaged_result_counts_as_none() -> None:
    computed.clear()
    with pytest.raises(NotRecorded), recorded_only():
        counted(Parameters(number=5))
    assert computed == []
    reference = counted(Parameters(number=5))
    with recorded_only():
        assert counted(Parameters(number=5)) == reference
    (default_store().folder(reference) / "number.json").write_text("6")
    with pytest.raises(NotRecorded), recorded_only():
        counted(Parameters(number=5))
    assert computed == [5]


def test_neither_prefect_nor_mlflow_is_imported_to_look_for_records() -> None:
    code = (
        "import sys, flows.commands.running, flows.recording.dvc_stages, flows.commands.show, flows.commands.compare, "
        "flows.commands.lineage; "
        "print([name for name in ('prefect', 'mlflow', 'matplotlib', 'torch', 'transformers') if name in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
