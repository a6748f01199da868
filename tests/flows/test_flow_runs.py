"""Flow runs: the tags by which they are found, and what is a part of what."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from uuid import UUID

import pytest
from prefect import flow, runtime
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import (
    FlowRunFilter,
    FlowRunFilterId,
    FlowRunFilterParentFlowRunId,
    FlowRunFilterTags,
    LogFilter,
    LogFilterFlowRunId,
)
from prefect.client.schemas.objects import FlowRun, Log, TaskRun
from prefect.logging.handlers import APILogHandler
from pydantic import BaseModel, ConfigDict

from flows.runtime.flow_runs import flow_run_log, in_flow_run, run_flow, tags_of, untagged_tasks
from tasks.caching import depends_on
from tasks.orchestration import deferred
from tasks.orchestration.deferred import task
from turnwise.experiment import Experiment, load
from turnwise.project import project_root
from turnwise.store import Reference, default_store

pytestmark = pytest.mark.usefixtures("prefect_server", "turnwise_home")


class Parameters(BaseModel):
    model_config = ConfigDict(frozen=True)

    number: int


@task(name="counted", task_run_name="{label}: counted", retries=1)
@depends_on()
def counted(parameters: Parameters, *, label: str = "counted") -> Reference:
    """A number, as an artifact."""
    with default_store().write("number") as draft:
        (draft.folder / "number.json").write_text(json.dumps(parameters.number))
    return draft.reference


@flow(name="DVC stage", validate_parameters=False)
def tagged(stage: str, experiment: Experiment, variant: str | None, seed: int | None) -> set[str]:
    """The tags of its own flow run."""
    return set(runtime.flow_run.tags)


def test_a_flow_run_is_tagged_with_what_it_is_of() -> None:
    experiment = load(Path(__file__).parents[2] / "params.yaml", settings={"ablation.name": "mine"})
    expected = {"ablation mine", "world search", "stage train", "variant mt-grpo", "seed 2"}
    assert expected <= run_flow(tagged, "train", experiment, "mt-grpo", seed=2)
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


@flow(name="run", flow_run_name="{variant} seed {seed}", validate_parameters=False)
@untagged_tasks
def run(experiment: Experiment, variant: str, seed: int) -> None:
    """A run of one stage."""
    counted(Parameters(number=10 + seed))


@flow(name="comparison", flow_run_name="whole", validate_parameters=False)
def whole(experiment: Experiment) -> str:
    """Two runs."""
    for seed in (1, 2):
        run_flow(run, experiment, "mt-grpo", seed)
    return str(runtime.flow_run.id)


def test_the_runs_of_an_ablation_are_found_by_tag_and_as_parts_of_its_flow_run() -> None:
    mine = load(Path(__file__).parents[2] / "params.yaml", settings={"ablation.name": "found-by-tag"})
    identity = run_flow(whole, mine)
    run_flow(run, mine, "grpo-or", 1)  # as a worker does, which is another process
    whole_run, *runs = sorted(flow_runs_of("ablation found-by-tag"), key=lambda run: run.name != "whole")
    assert str(whole_run.id) == identity and not in_flow_run()
    assert [run.name for run in runs] == ["grpo-or seed 1", "mt-grpo seed 1", "mt-grpo seed 2"]
    with get_client(sync_client=True) as client:
        parts = FlowRunFilter(parent_flow_run_id=FlowRunFilterParentFlowRunId(any_=[whole_run.id]))
        assert {run.id for run in client.read_flow_runs(flow_run_filter=parts)} == {run.id for run in runs[1:]}
    assert [run.name for run in flow_runs_of("ablation found-by-tag", "variant mt-grpo", "seed 2")] == [runs[2].name]


@dataclass
class CountedRun:
    """A run with what it was given."""

    experiment: Experiment
    number: Reference


@task(name="listed", task_run_name="{label}: listed", retries=1)
@depends_on()
def listed(parameters: Parameters, *, numbers: list[Reference], label: str = "listed") -> Reference:
    """How many numbers there are, as an artifact."""
    with default_store().write("number") as draft:
        (draft.folder / "number.json").write_text(json.dumps(len(numbers)))
    return draft.reference


@deferred.flow(name="train", flow_run_name="seed {seed}", validate_parameters=False)
def counted_run(experiment: Experiment, seed: int) -> CountedRun:
    """A run of one stage, with its result."""
    return CountedRun(experiment, counted(Parameters(number=20 + seed)))


@flow(name="comparison", validate_parameters=False)
def listed_runs(experiment: Experiment) -> tuple[str, list[CountedRun]]:
    """A stage on the results of two runs."""
    runs = [run_flow(counted_run, experiment, seed) for seed in (1, 2)]
    listed(Parameters(number=0), numbers=[run.number for run in runs])
    return str(runtime.flow_run.id), runs


def test_no_run_counts_as_an_input_of_what_is_called_after_it_which_would_empty_the_pages_list_of_task_runs() -> None:
    identity, runs = run_flow(listed_runs, load(Path(__file__).parents[2] / "params.yaml"))
    assert [run.number.kind for run in runs] == ["number", "number"]
    within, found = FlowRunFilter(id=FlowRunFilterId(any_=[UUID(identity)])), list[TaskRun]()
    with get_client(sync_client=True) as client:
        while len(found) < 3:  # the two runs, and `listed`; the server records task runs as their events come
            found = client.read_task_runs(flow_run_filter=within)
    kinds = {each.input_type for task_run in found for inputs in task_run.task_inputs.values() for each in inputs}
    assert "flow_run" not in kinds, "Prefect's page shows no task run of a flow run that has such an input"


def test_the_log_of_a_flow_run_has_its_lines_and_our_warnings_and_the_terminal_only_these(
    capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    @flow(name="telling", validate_parameters=False)
    def telling() -> str:
        log = flow_run_log()
        told = Thread(target=log, args=["90%  mt-grpo seed 1: update"])  # as one that follows a worker does
        told.start()
        told.join()
        logging.getLogger("flows.health").warning("mt-grpo seed 1 iteration 2: alarm")
        logging.getLogger("elsewhere").warning("of no concern")
        return str(runtime.flow_run.id)

    identity = run_flow(telling)
    flow_run_log()("outside of a flow run")
    chosen = LogFilter(flow_run_id=LogFilterFlowRunId(any_=[UUID(identity)]))
    logged: list[Log] = []
    with get_client(sync_client=True) as client:
        while len(logged) < 2:
            APILogHandler().flush()
            logged = client.read_logs(chosen)
    assert {(log.name, log.message) for log in logged} == {
        ("turnwise.run", "90%  mt-grpo seed 1: update"),
        ("flows.health", "mt-grpo seed 1 iteration 2: alarm"),
    }
    assert "seed 1: update" not in capfd.readouterr().err + caplog.text
    assert "iteration 2: alarm" in caplog.text


def test_neither_prefect_nor_mlflow_is_imported_to_look_for_records() -> None:
    code = (
        "import sys, flows.commands.running, flows.commands.records, turnwise.records.sources, flows.plan, "
        "turnwise.records.episodes, turnwise.records.sources, turnwise.reporting.data.run_groups; "
        "print([name for name in ('prefect', 'mlflow', 'matplotlib', 'torch', 'transformers') if name in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_a_flow_works_on_one_project_whatever_changes_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DVC_ROOT", raising=False)
    (tmp_path / "params.yaml").touch()
    monkeypatch.chdir(tmp_path)

    @flow(name="wanderer", validate_parameters=False)
    def wanderer() -> tuple[Path, Path]:
        before = project_root()
        monkeypatch.chdir("/")
        return before, project_root()

    assert run_flow(wanderer) == (tmp_path, tmp_path)
