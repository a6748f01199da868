"""The recorder on the real MLflow and a SQLite file: whatever is recorded is recorded once."""

from __future__ import annotations

import base64
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import zlib
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tracking_samples import PARAMETERS, TASK_SET, open_child, traces, trajectory

from turnwise.errors import ConfigurationError
from turnwise.tracking import Dataset, Recorder, TrackedRun, ui_command
from turnwise.tracking.runs import IterationMetrics
from turnwise.tracking.values import batches, flatten, shortened
from turnwise.tracking.views import Chart


def all_runs(recorder: Recorder) -> list[Any]:
    return list(recorder._client.search_runs([recorder._experiment_id], run_view_type=3))


def points(recorder: Recorder, run: TrackedRun, name: str) -> list[tuple[int, float]]:
    history = recorder._client.get_metric_history(run.id, name)
    return sorted((metric.step, metric.value) for metric in history)


def test_importing_the_recorder_imports_no_mlflow() -> None:
    script = "import sys, turnwise.tracking; sys.exit('mlflow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


KILLED_IN_ITERATION_3 = """
import os, signal, sys
from pathlib import Path
from turnwise.own_process import collect_rarely
collect_rarely()
from turnwise.tracking import Recorder
database, artifacts = sys.argv[1:]
recorder = Recorder(f"sqlite:///{database}", "turnwise", Path(artifacts))
parent = recorder.parent("credit rules", "parent-1", {"seed": 1})
child = recorder.child(parent, "mt-grpo seed 1", "child-1", {"seed": 1})
for iteration in range(3):
    child.log_iteration(iteration, {"train/success": iteration / 10, "train/entropy": 1.0})
child.log_iteration(3, {"train/success": 0.3})
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_run_continues_with_each_point_once_and_a_new_database_is_migrated_in_silence(tmp_path: Path) -> None:
    database, artifacts = tmp_path / "new" / "mlflow.db", tmp_path / "artifacts"
    killed = subprocess.run(
        [sys.executable, "-c", KILLED_IN_ITERATION_3, str(database), str(artifacts)],
        capture_output=True,
        text=True,
        check=False,
        env={name: value for name, value in os.environ.items() if name != "MLFLOW_LOGGING_LEVEL"},
    )
    assert (killed.returncode, killed.stdout, killed.stderr) == (-signal.SIGKILL, "", "")

    recorder = Recorder(f"sqlite:///{database}", "turnwise", artifacts)
    parent = recorder.parent("credit rules", "parent-1", {"seed": 1})
    child = recorder.child(parent, "mt-grpo seed 1", "child-1", {"seed": 1})
    assert not child.finished
    for iteration in range(5):
        child.log_iteration(iteration, {"train/success": iteration / 10, "train/entropy": 1.0})
    child.finish("result")

    assert points(recorder, child, "train/success") == [(step, step / 10) for step in range(5)]
    assert points(recorder, child, "train/entropy") == [(step, 1.0) for step in range(5)]
    assert len(all_runs(recorder)) == 2


def test_the_same_iteration_logged_twice_by_one_process_is_recorded_once(
    open_recorder: Callable[[], Recorder],
) -> None:
    recorder = open_recorder()
    child = open_child(recorder)
    child.log_iteration(0, {"train/success": 0.5})
    child.log_iteration(0, {"train/success": 0.5, "train/entropy": 1.0})
    assert points(recorder, child, "train/success") == [(0, 0.5)]
    assert points(recorder, child, "train/entropy") == [(0, 1.0)]


def test_a_cached_repeat_makes_no_run_no_metric_no_trace_and_leaves_nothing_running(
    open_recorder: Callable[[], Recorder], capfd: pytest.CaptureFixture[str]
) -> None:
    def experiment() -> Recorder:
        recorder = open_recorder()
        child = open_child(recorder)
        for iteration in range(3):
            child.log_iteration(iteration, {"train/success": iteration / 10})
        child.log_trajectories("validation/0002", [trajectory()])
        child.log_summary({"test/success": 0.75})
        child.finish("result")
        parent = recorder.parent("credit rules", "parent-1", PARAMETERS)
        parent.log_summary({"best/success": 0.75})
        parent.finish("results")
        return recorder

    def recorded(recorder: Recorder) -> list[Any]:
        return [
            (
                run.info,
                {name: recorder._client.get_metric_history(run.info.run_id, name) for name in run.data.metrics},
                run.data.tags,
                [
                    trace.info.trace_id
                    for trace in recorder._client.search_traces(
                        locations=[recorder._experiment_id], run_id=run.info.run_id
                    )
                ],
            )
            for run in all_runs(recorder)
        ]

    first = recorded(experiment())
    second = recorded(experiment())
    assert repr(first) == repr(second)
    assert [info.status for info, *_ in first] == ["FINISHED", "FINISHED"]
    assert sum(len(history) for _, metrics, *_ in first for history in metrics.values()) == 5
    assert sum(len(found) for *_, found in first) == 1
    assert capfd.readouterr() == ("", "")


def test_a_child_is_nested_and_carries_flat_parameters_tags_and_dataset_digests(
    open_recorder: Callable[[], Recorder],
) -> None:
    recorder = open_recorder()
    child = open_child(recorder)
    parent = recorder.parent("credit rules", "parent-1", PARAMETERS)
    run = recorder._client.get_run(child.id)
    assert run.data.tags["mlflow.parentRunId"] == parent.id
    assert run.data.tags["turnwise.commit"] == "136577a"
    assert run.info.run_name == "mt-grpo seed 1"
    assert run.data.params == {
        "credit.estimator": "mt-grpo",
        "credit.options.epsilon": "0.0001",
        "seeds": "[1, 2]",
        "note": "null",
    }
    (entry,) = run.inputs.dataset_inputs
    assert (entry.dataset.name, entry.dataset.digest) == (TASK_SET.name, TASK_SET.digest)
    assert [(tag.key, tag.value) for tag in entry.tags] == [("mlflow.data.context", "training")]


def test_children_of_two_ablations_that_share_a_variant_are_two_runs(open_recorder: Callable[[], Recorder]) -> None:
    recorder = open_recorder()
    one, other = (recorder.parent(name, name, {}) for name in ("three rules", "four rules"))
    children = [recorder.child(parent, "grpo seed 1", "same", {}) for parent in (one, other, one)]
    assert children[0].id == children[2].id != children[1].id


def test_a_run_that_another_process_made_meanwhile_is_shared(
    open_recorder: Callable[[], Recorder], monkeypatch: pytest.MonkeyPatch
) -> None:
    rival = open_recorder()
    recorder = open_recorder()
    find = recorder._find
    too_early = iter([True])  # the first look does not see the rival's run
    monkeypatch.setattr(recorder, "_find", lambda *asked: None if next(too_early, False) else find(*asked))
    earlier = rival.parent("credit rules", "parent-1", {})
    later = recorder.parent("credit rules", "parent-1", {})
    assert later.id == earlier.id
    stages = Counter(run.info.lifecycle_stage for run in all_runs(recorder))
    assert stages == {"active": 1, "deleted": 1}


def test_a_failed_run_is_taken_up_again(open_recorder: Callable[[], Recorder]) -> None:
    recorder = open_recorder()
    child = open_child(recorder)
    child.fail("the world was lost")
    failed = recorder._client.get_run(child.id)
    assert (failed.info.status, failed.data.tags["turnwise.failure"]) == ("FAILED", "the world was lost")

    again = open_child(open_recorder())
    running = recorder._client.get_run(again.id)
    assert again.id == child.id
    assert running.info.status == "RUNNING"
    assert "turnwise.failure" not in running.data.tags
    again.finish("result")
    finished = recorder._client.get_run(again.id)
    assert (finished.info.status, finished.data.tags["turnwise.result"]) == ("FINISHED", "result")


def test_another_result_of_the_same_configuration_is_told_and_recorded_beside_the_first(
    open_recorder: Callable[[], Recorder], caplog: pytest.LogCaptureFixture
) -> None:
    recorder = open_recorder()
    open_child(recorder).finish("result")
    assert not caplog.records
    again = open_child(recorder)
    again.finish("another result")
    assert "must give the same result" in caplog.text
    tags = recorder._client.get_run(again.id).data.tags
    assert (tags["turnwise.result"], tags["turnwise.result.later"]) == ("result", "another result")


def test_a_finished_run_takes_no_more_iterations_and_traces(open_recorder: Callable[[], Recorder]) -> None:
    recorder = open_recorder()
    child = open_child(recorder)
    child.finish("result")
    child.log_iteration(9, {"train/success": 0.5})
    child.log_trajectories("late", [trajectory()])
    assert recorder._client.get_run(child.id).data.metrics == {}
    assert traces(recorder, child) == []


def test_other_parameters_under_the_same_identity_are_refused(open_recorder: Callable[[], Recorder]) -> None:
    recorder = open_recorder()
    recorder.parent("credit rules", "parent-1", {"rollout": {"temperature": 1.0}, "seed": 1})
    with pytest.raises(ConfigurationError, match=r"rollout\.temperature.*1\.0.*0\.9.*TW-repeated-identity"):
        recorder.parent("credit rules", "parent-1", {"rollout": {"temperature": 0.9}, "seed": 1})


def test_metrics_that_are_not_finite_are_left_out_and_counted(open_recorder: Callable[[], Recorder]) -> None:
    recorder = open_recorder()
    child = open_child(recorder)
    child.log_iteration(4, {"a": math.nan, "b": math.inf, "validation/pass@4": 0.5})
    metrics = recorder._client.get_run(child.id).data.metrics
    assert metrics == {"validation/pass_at_4": 0.5, "not_finite": 2.0}


def test_more_metrics_and_parameters_than_one_write_takes_are_all_recorded(
    open_recorder: Callable[[], Recorder],
) -> None:
    recorder = open_recorder()
    run = recorder.parent("wide", "wide", {f"p{number}": number for number in range(205)})
    run.log_iteration(0, {f"m{number}": float(number) for number in range(1005)})
    data = recorder._client.get_run(run.id).data
    assert len(data.params) == 205
    assert sum(data.metrics.values()) == sum(range(1005))


def test_artifacts_are_stored_under_their_names_and_replaced(
    open_recorder: Callable[[], Recorder], tmp_path: Path
) -> None:
    recorder = open_recorder()
    child = open_child(recorder)
    report = tmp_path / "report.html"
    for text in ("first", "second"):
        report.write_text(text)
        child.log_artifact(report)
    child.log_text("--- a\n+++ b\n", "uncommitted.diff")
    assert [entry.path for entry in recorder._client.list_artifacts(child.id)] == ["report.html", "uncommitted.diff"]
    (stored,) = (tmp_path / "artifacts").rglob("report.html")
    assert stored.read_text() == "second"


def test_a_dataset_digest_that_mlflow_would_not_keep_is_refused(open_recorder: Callable[[], Recorder]) -> None:
    child = open_child(open_recorder())
    with pytest.raises(ConfigurationError, match=r"\b36\b.*TW-long-digest"):
        child.log_dataset(Dataset("task_set", "0" * 64, "testing", "store"))


RECORDS_AND_LOOKS_AT_THE_GENERATORS = """
import random, sys
from pathlib import Path
from turnwise.own_process import collect_rarely, leave
collect_rarely()
import numpy
from tracking_samples import open_child, trajectory
from turnwise.tracking import Recorder
database, artifacts = sys.argv[1:]
child = open_child(Recorder(f"sqlite:///{database}", "turnwise", Path(artifacts)))
before = random.getstate(), repr(numpy.random.get_state())
child.log_iteration(0, {"train/success": 0.5})
child.log_trajectories("test", [trajectory()])
child.finish("result")
leave((random.getstate(), repr(numpy.random.get_state())) != before)
"""


def test_recording_draws_nothing_from_the_global_generators(migrated_database: Path, tmp_path: Path) -> None:
    """In a process where nothing else draws: threads that other tests left behind may."""
    database = shutil.copy(migrated_database, tmp_path / "mlflow.db")
    paths = [str(Path(__file__).parent), *sys.path]
    command = [sys.executable, "-c", RECORDS_AND_LOOKS_AT_THE_GENERATORS, str(database), str(tmp_path / "artifacts")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    assert subprocess.run(command, env=environment, check=False).returncode == 0


def test_telemetry_is_off(open_recorder: Callable[[], Recorder]) -> None:
    open_recorder()
    from mlflow.telemetry.client import get_telemetry_client

    assert get_telemetry_client() is None
    assert (os.environ["MLFLOW_DISABLE_TELEMETRY"], os.environ["DO_NOT_TRACK"]) == ("true", "true")


def test_a_long_value_is_cut_to_its_limit_and_still_tells_itself_from_others() -> None:
    one, other = (shortened("x" * 7000 + end, 6000) for end in "ab")
    assert len(one) == len(other) == 6000
    assert one != other
    assert shortened("short", 6000) == "short"


def test_flat_parameters_keep_their_order_and_what_is_empty() -> None:
    flat = flatten({"b": {"y": True, "x": {}}, "a": [], "c": {"d": {"e": "text"}}})
    assert list(flat.items()) == [("b.y", "true"), ("b.x", "{}"), ("a", "[]"), ("c.d.e", "text")]


def test_batches_hold_every_entry_in_order() -> None:
    assert list(batches([1, 2, 3, 4, 5], 2)) == [[1, 2], [3, 4], [5]]


def test_the_ui_is_served_on_this_machine_only_from_the_given_store() -> None:
    command = ui_command("sqlite:////somewhere/mlflow.db", 5001)
    assert command[:3] == ["env", "MLFLOW_DISABLE_TELEMETRY=true", "DO_NOT_TRACK=true"]
    options = dict(zip(command[-16::2], command[-15::2], strict=True))
    assert options["--backend-store-uri"] == "sqlite:////somewhere/mlflow.db"
    assert (options["--host"], options["--port"]) == ("127.0.0.1", "5001")
    assert options["--allowed-hosts"] == "127.0.0.1:5001,localhost:5001"
    assert options["--cors-allowed-origins"] == "http://127.0.0.1:5001,http://localhost:5001"
    assert options["--uvicorn-opts"] == "--log-level warning", "no line for each request, which hides the address"
    with pytest.raises(ConfigurationError, match="TW-tracking-server") as refused:
        ui_command("http://turnwise:secret@localhost:5000", 5001)
    assert "secret" not in str(refused.value)


def test_an_ablation_has_one_saved_view_however_often_it_is_closed(open_recorder: Callable[[], Recorder]) -> None:
    for _ in range(2):
        recorder = open_recorder()
        parent = recorder.parent("credit rules", "parent-1", PARAMETERS)
        charts = [Chart("LINE", "validation/success", "Validation"), Chart("BAR", "test/success", "Test")]
        parent.save_view("credit rules: by variant", ["test/success"], charts)
    tags = recorder._client.get_experiment(recorder._experiment_id).tags
    (value,) = [value for key, value in tags.items() if key == f"mlflow.sharedViewState.turnwise-{parent.id[:12]}"]
    view = json.loads(value)
    assert view["name"] == "credit rules: by variant"
    state = json.loads(zlib.decompress(base64.b64decode(view["state"].removeprefix("deflate;"))))
    assert state["searchFilter"] == f"tags.mlflow.parentRunId = '{parent.id}'"
    assert state["groupBy"]["groupByKeys"] == [{"mode": "param", "groupByData": "variant"}]
    assert state["selectedColumns"] == ["params.`variant`", "metrics.`test/success`"], "not the mean of the seeds"
    shown = {section["uuid"]: section["name"] for section in state["compareRunSections"]}
    assert [
        (each["type"], each["metricKey"], shown[each["metricSectionId"]]) for each in state["compareRunCharts"]
    ] == [
        ("LINE", "validation/success", "Validation"),
        ("BAR", "test/success", "Test"),
    ]


def test_an_iteration_s_metrics_are_recorded_with_as_many_queries_late_in_a_run_as_early(
    open_recorder: Callable[[], Recorder], monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = open_recorder()
    child = open_child(recorder)
    asked = Counter[str]()

    def counted(name: str) -> None:
        function = getattr(recorder._client, name)

        def within(*arguments: Any, **named: Any) -> Any:
            asked[name] += 1
            return function(*arguments, **named)

        monkeypatch.setattr(recorder._client, name, within)

    for name in ("run", "get_metric_history", "log_batch", "set_tag"):
        counted(name)
    of_each = []
    for number in range(6):
        asked.clear()
        child.log_iteration(number, {"train/success": 0.5, "train/entropy": 1.0})
        of_each.append(dict(asked))
    assert of_each[0] == {"run": 1, "set_tag": 1, "log_batch": 1}
    assert of_each[1:] == [{"run": 1, "log_batch": 1}] * 5


def test_iterations_that_were_recorded_together_and_by_two_processes_in_turns_are_recorded_once(
    open_recorder: Callable[[], Recorder],
) -> None:
    recorder = open_recorder()
    child, other = open_child(recorder), open_child(open_recorder())
    child.log_iterations([IterationMetrics(number, {"train/success": number / 10}) for number in range(3)])
    other.log_iterations([IterationMetrics(number, {"train/success": number / 10}) for number in range(5)])
    child.log_iterations([IterationMetrics(number, {"train/success": number / 10}) for number in range(2, 7)])
    assert points(recorder, child, "train/success") == [(number, number / 10) for number in range(7)]
