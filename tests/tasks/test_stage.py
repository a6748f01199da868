"""Stages on a real Prefect server: what is cached, what is computed again, what is tried again."""

from __future__ import annotations

import errno
import inspect
import json
import logging
import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from number_samples import Parameters, write_number
from prefect import flow
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterId
from prefect.context import FlowRunContext
from pydantic import BaseModel
from safetensors import SafetensorError

from tasks.caching import cache_key, dependencies_of, depends_on
from tasks.orchestration.deferred import task
from turnwise.errors import ArtifactError, ConfigurationError, DiskFull, WorldLost
from turnwise.project import home
from turnwise.store import Reference, default_store
from turnwise.training_runs.observing import Observer, StageCall, observing

pytestmark = pytest.mark.usefixtures("prefect_server", "turnwise_home")


threads: list[int] = []


@task(name="start", task_run_name="{label}: start", retries=1)
@depends_on()
def start(parameters: Parameters, *, label: str = "start") -> Reference:
    """A stage without inputs."""
    threads.append(threading.get_ident())
    return write_number(parameters.factor)


@task(name="multiply", task_run_name="{label}: multiply", retries=1)
@depends_on()
def multiply(
    parameters: Parameters,
    *,
    number: Reference,
    more: list[Reference] | None = None,
    by: Any = None,
    label: str = "multiply",
) -> Reference:
    """A stage with inputs of every shape."""
    total = default_store().metrics(number)["value"]
    for other in more or []:
        total += default_store().metrics(other)["value"]
    return write_number(total * parameters.factor)


failures: list[Exception] = []


@task(name="fragile", task_run_name="{label}: fragile", retries=2, retry_delay_seconds=0)
@depends_on()
def fragile(parameters: Parameters, *, label: str = "fragile") -> Reference:
    """Raises what is in `failures`, one after another."""
    if failures:
        raise failures.pop(0)
    return write_number(parameters.factor)


class Recorder(Observer):
    def __init__(self) -> None:
        self.begun: list[tuple[str, str]] = []
        self.calls: list[StageCall] = []

    def started(self, stage: str, label: str) -> None:
        self.begun.append((stage, label))

    def finished(self, call: StageCall) -> None:
        self.calls.append(call)


def was_cached(call: Any, *arguments: Any, **inputs: Any) -> bool:
    recorder = Recorder()
    with observing(recorder):
        call(*arguments, **inputs)
    return recorder.calls[-1].cached


def test_the_same_call_is_computed_once_and_then_found() -> None:
    recorder = Recorder()
    with observing(recorder):
        first = start(Parameters(), label="seed 1 {iteration}")
        second = start(Parameters(), label="another label")
    start(Parameters())
    assert first == second
    assert recorder.begun == [("start", "seed 1 {iteration}")], "what is found does not begin"
    assert [(call.stage, call.label, call.reference, call.cached) for call in recorder.calls] == [
        ("start", "seed 1 {iteration}", first, False),
        ("start", "another label", first, True),
    ]
    assert recorder.calls[0].seconds >= default_store().clock(first)["seconds"] > 0


def test_parameters_and_inputs_decide_and_nothing_else() -> None:
    two, three = start(Parameters(factor=2)), start(Parameters(factor=3))
    six = multiply(Parameters(), number=three)
    assert default_store().metrics(six) == {"value": 6.0}
    assert was_cached(multiply, Parameters(), number=three)
    assert was_cached(multiply, Parameters(), number=three, more=None), "a default is the same as its value"
    assert not was_cached(multiply, Parameters(factor=5), number=three)
    assert not was_cached(multiply, Parameters(), number=two)
    assert not was_cached(multiply, Parameters(), number=two, more=[two, three])
    assert not was_cached(multiply, Parameters(), number=two, more=[three, two]), "a list is ordered"
    assert not was_cached(multiply, Parameters(), number=two, by={"a": two, "b": [three, None]})
    assert was_cached(multiply, Parameters(), number=two, by={"b": [three, None], "a": two}), "a dictionary is not"


def test_equal_content_by_another_way_changes_nothing_that_follows() -> None:
    four = start(Parameters(factor=4))
    same = multiply(Parameters(factor=2), number=start(Parameters(factor=2)))
    assert same == four
    multiply(Parameters(), number=four)
    assert was_cached(multiply, Parameters(), number=same)
    ways = default_store().lineage(four)
    assert [way["stage"] for way in ways.values()].count("start") == 1 and len(ways) == 2


def test_the_lineage_says_how_the_result_came_about() -> None:
    three = start(Parameters(factor=3))
    result = multiply(Parameters(factor=7), number=three)
    (way,) = default_store().lineage(result).values()
    assert way["stage"] == "multiply"
    assert way["parameters"] == {"factor": 7}
    assert way["inputs"] == {"number": str(three), "more": None, "by": None}
    assert way["platform"]["packages"]["torch"]
    assert {"code", "commit", "uncommitted"} <= set(way)
    assert (
        cache_key(multiply, Parameters(factor=7), number=three)
        == f"multiply/{next(iter(default_store().lineage(result)))}"
    )


def test_a_deleted_artifact_is_computed_again_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    reference = start(Parameters())
    shutil.rmtree(default_store().folder(reference))
    with caplog.at_level(logging.WARNING):
        assert not was_cached(start, Parameters(), label="seed 1")
    assert [record.message for record in caplog.records if "seed 1: start was computed before" in record.message]
    assert default_store().holds(reference)
    assert was_cached(start, Parameters())


def test_a_damaged_artifact_is_computed_again_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    reference = start(Parameters())
    path = default_store().folder(reference) / "number.json"
    path.write_text("3")
    with caplog.at_level(logging.WARNING):
        assert not was_cached(start, Parameters())
    assert [record.message for record in caplog.records if "number.json" in record.message]
    assert path.read_text() == "2.0"


def test_a_record_cut_off_by_a_kill_is_computed_again_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    start(Parameters())
    record = home() / "results" / cache_key(start, Parameters())
    record.write_bytes(record.read_bytes()[:50])
    with caplog.at_level(logging.WARNING):
        assert not was_cached(start, Parameters())
    assert [entry.message for entry in caplog.records if "cannot be read" in entry.message]
    assert was_cached(start, Parameters())


def test_a_damaged_input_stops_the_stage() -> None:
    two = start(Parameters())
    shutil.rmtree(default_store().folder(two))
    with pytest.raises(ArtifactError, match="TW-no-artifact"):
        multiply(Parameters(), number=two)


def test_two_homes_do_not_mix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    start(Parameters())
    monkeypatch.setenv("TURNWISE_HOME", str(tmp_path / "other"))
    assert not was_cached(start, Parameters())
    assert was_cached(start, Parameters())
    assert (tmp_path / "other" / "results" / cache_key(start, Parameters())).is_file()


def test_failures_of_the_infrastructure_are_tried_again() -> None:
    failures[:] = [ConnectionResetError("gone"), WorldLost("the world hangs")]
    assert default_store().metrics(fragile(Parameters())) == {"value": 2.0}
    failures[:] = [TimeoutError("1"), OSError("2"), WorldLost("3"), WorldLost("4")]
    with pytest.raises(WorldLost, match="3"):
        fragile(Parameters(factor=3))
    assert len(failures) == 1, "two retries, no more"


@pytest.mark.parametrize("mistake", [ConfigurationError("wrong"), ZeroDivisionError(), FileNotFoundError("x")])
def test_mistakes_are_not_tried_again_and_not_remembered(mistake: Exception) -> None:
    failures[:] = [mistake, ValueError("must not be reached")]
    with pytest.raises(type(mistake)):
        fragile(Parameters())
    assert len(failures) == 1
    failures.clear()
    assert not was_cached(fragile, Parameters())


@pytest.mark.parametrize(
    "full", [SafetensorError("I/O error: No space left on device (os error 28)"), OSError(errno.ENOSPC, "No space")]
)
def test_a_full_disk_is_tried_again_and_then_told_in_one_sentence(full: Exception) -> None:
    failures[:] = [full]
    assert default_store().metrics(fragile(Parameters())) == {"value": 2.0}
    failures[:] = [full] * 3
    with pytest.raises(DiskFull, match=rf"{home()}.*TW-full-disk") as told:
        fragile(Parameters(factor=3))
    assert failures == [] and "\n" not in str(told.value)


def test_every_stage_is_tried_again_once_unless_it_says_otherwise() -> None:
    failures[:] = [ConnectionResetError("gone")]

    @task(
        name="once_more",
        task_run_name="{label}: once_more",
        retries=1,
        retry_delay_seconds=0,
    )
    @depends_on()
    def once_more(parameters: Parameters, *, label: str = "once_more") -> Reference:
        if failures:
            raise failures.pop(0)
        return write_number(parameters.factor)

    assert default_store().holds(once_more(Parameters()))


def test_runs_in_the_callers_thread_and_under_its_label_in_prefect() -> None:
    @flow(name="labels")
    def two_runs() -> str:
        threads[:] = []
        start(Parameters(), label="grpo-or seed 1 iteration 7")
        start(Parameters(), label="grpo-mr seed 1 iteration 7")
        context = FlowRunContext.get()
        assert context is not None and context.flow_run is not None
        return str(context.flow_run.id)

    identifier = two_runs()
    assert threads == [threading.get_ident()], "an engine in this process may be driven from one thread only"
    runs = wait_for_task_runs(identifier, 2)
    assert sorted((name, state) for name, state in runs) == [
        ("grpo-mr seed 1 iteration 7: start", "Cached"),
        ("grpo-or seed 1 iteration 7: start", "Completed"),
    ]


def wait_for_task_runs(flow_run: str, number: int) -> list[tuple[str, str | None]]:
    """Prefect's server learns of task runs by events, which arrive later: on a busy machine a minute."""
    chosen = FlowRunFilter(id=FlowRunFilterId(any_=[flow_run]))
    while True:
        with get_client(sync_client=True) as client:
            runs = [(run.name, run.state_name) for run in client.read_task_runs(flow_run_filter=chosen)]
        if len(runs) >= number and all(state in ("Cached", "Completed") for _, state in runs):
            return runs
        time.sleep(0.2)


def test_the_record_is_the_reference_as_json_which_names_no_class() -> None:
    reference = start(Parameters())
    content = (home() / "results" / cache_key(start, Parameters())).read_bytes()
    assert json.loads(content) == reference.model_dump()


def test_what_is_no_stage_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="TW-stage-signature"):

        @task(name="wrong", task_run_name="{label}: wrong", retries=1)
        @depends_on()
        def wrong(settings: Parameters, *, label: str = "wrong") -> Reference:
            raise AssertionError

    with pytest.raises(TypeError, match=r"multiply's input by .* holds a int"):
        multiply(Parameters(), number=start(Parameters()), by=3)

    @task(name="nothing", task_run_name="{label}: nothing", retries=1)
    @depends_on()
    def nothing(parameters: Parameters, *, label: str = "nothing") -> Reference:
        return None  # type: ignore[return-value]

    with pytest.raises(TypeError, match="nothing returned NoneType"):
        nothing(Parameters())


def test_a_second_stage_of_the_same_name_is_refused_where_it_is_declared() -> None:
    before = cache_key(start, Parameters())

    def another(parameters: Parameters) -> Reference:
        raise AssertionError

    another.__name__ = "start"
    with pytest.raises(ConfigurationError, match=r"'start'.*test_stage\.start.*TW-taken-name"):
        depends_on()(another)
    depends_on()(inspect.unwrap(start.fn))  # its module was loaded again
    assert cache_key(start, Parameters()) == before


def test_the_code_of_a_world_named_in_the_parameters_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("one_world", "another_world"):
        (tmp_path / f"{name}.py").write_text(f"name = {name!r}\n")
    monkeypatch.syspath_prepend(str(tmp_path))

    class WorldParameters(BaseModel):
        module: str

    @task(name="visit", task_run_name="{label}: visit", retries=1)
    @depends_on(code=lambda parameters: [parameters.module])
    def visit(parameters: WorldParameters, *, label: str = "visit") -> Reference:
        return write_number(1)

    @task(name="stay", task_run_name="{label}: stay", retries=1)
    @depends_on()
    def stay(parameters: WorldParameters, *, label: str = "stay") -> Reference:
        return write_number(1)

    def code(key_of: Any, module: str) -> str:
        return str(dependencies_of(key_of).ingredients(WorldParameters(module=module))["code"])

    assert code(visit, "one_world") != code(visit, "another_world")
    assert code(stay, "one_world") == code(stay, "another_world")


SCRIPT = """
from turnwise.own_process import collect_rarely, leave
collect_rarely()
from flows.runtime.server import ensure_server
ensure_server()
from our_stage import Parameters, number
from turnwise.training_runs.observing import Observer, observing
class Say(Observer):
    def finished(self, call):
        print(call.cached, call.reference)
with observing(Say()):
    number(Parameters())
leave(0)
"""

OUR_STAGE = """
from pydantic import BaseModel
from tasks.caching import depends_on
from tasks.orchestration.deferred import task
from turnwise.store import Reference, default_store
from our_helper import value
class Parameters(BaseModel):
    scale: int = 1
@task(name="number")
@depends_on()
def number(parameters: Parameters) -> Reference:
    with default_store().write("number") as draft:
        draft.metrics["value"] = value()
    return draft.reference
"""


def run_in_a_new_process(folder: Path, helper: str, hash_seed: int) -> tuple[str, str]:
    (folder / "our_stage.py").write_text(OUR_STAGE)
    (folder / "our_helper.py").write_text(helper)
    answer = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env={**os.environ, "PYTHONPATH": str(folder), "PYTHONHASHSEED": str(hash_seed), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    cached, reference = answer.stdout.split()
    return cached, reference


def test_another_process_finds_the_result_unless_a_helper_has_changed(tmp_path: Path) -> None:
    first = run_in_a_new_process(tmp_path, "def value():\n    return 1\n", hash_seed=1)
    assert first[0] == "False"
    commented = '"""A helper."""\n\n\ndef value():\n    """One."""\n    return 1  # by definition\n'
    assert run_in_a_new_process(tmp_path, commented, hash_seed=2) == ("True", first[1])
    changed = run_in_a_new_process(tmp_path, "def value():\n    return 2\n", hash_seed=1)
    assert changed[0] == "False" and changed[1] != first[1]
