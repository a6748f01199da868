"""The policy that a run ended with is a logged model of it, once, with its test metrics and without its weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tracking_samples import open_child, trajectory

from turnwise.store import Reference
from turnwise.tracking import Dataset, Recorder, TrackedRun
from turnwise.tracking.models import LoggedPolicy

POLICY = Reference(kind="policy", digest="1" * 32)
TEST_SET = Dataset("search-test", "fedcba98" * 4, "testing", "store/task_set/fedc", rows=8)


def log(run: TrackedRun, policy: Reference = POLICY) -> LoggedPolicy | None:
    return run.log_policy(policy, 20, {"variant": "mt-grpo", "seed": "1"}, TEST_SET)


def models(recorder: Recorder) -> list[Any]:
    return list(recorder._client.search_logged_models([recorder._experiment_id]))


@pytest.fixture
def recorder(tmp_path: Path) -> Recorder:
    return Recorder(f"sqlite:///{tmp_path / 'mlflow.db'}", "turnwise", tmp_path / "artifacts")


def test_a_policy_is_an_output_of_its_run_with_its_metrics_on_the_test_task_set(recorder: Recorder) -> None:
    run = open_child(recorder)
    run.log_summary({"test/success": 0.75}, log(run))
    (model,) = models(recorder)
    assert str(model.status) == "READY" and model.model_type == "policy" and model.source_run_id == run.id
    assert model.tags["turnwise.policy"] == str(POLICY) and run.id in model.tags["mlflow.note.content"]
    assert model.params == {"variant": "mt-grpo", "seed": "1"}
    (metric,) = model.metrics
    assert (metric.key, metric.value, metric.run_id) == ("test/success", 0.75, run.id)
    assert (metric.dataset_name, metric.dataset_digest) == (TEST_SET.name, TEST_SET.digest)
    (output,) = recorder._client.get_run(run.id).outputs.model_outputs
    assert (output.model_id, output.step) == (model.model_id, 20)
    history = recorder._client.get_metric_history(run.id, "test/success")
    assert [(point.step, point.value) for point in history] == [(0, 0.75)], "once for the run, too"


def test_the_traces_of_its_test_episodes_are_shown_with_a_policy(recorder: Recorder) -> None:
    run = open_child(recorder)
    policy = log(run)
    assert policy is not None
    run.log_trajectories("batch/0001", [trajectory(0)])
    run.log_trajectories("test", [trajectory(0), trajectory(1)], policy=policy)
    shown = recorder._client.search_traces(locations=[recorder._experiment_id], model_id=policy.id)
    assert [trace.info.tags["turnwise.label"] for trace in shown] == ["test", "test"]


def test_no_file_is_written_for_a_model(recorder: Recorder, tmp_path: Path) -> None:
    log(open_child(recorder))
    assert not [path for path in (tmp_path / "artifacts").rglob("*") if path.is_file()]


def test_a_policy_that_is_recorded_already_is_not_recorded_again(recorder: Recorder) -> None:
    first, again = (log(open_child(recorder)) for _ in range(2))
    assert first == again and len(models(recorder)) == 1
    log(open_child(recorder), Reference(kind="policy", digest="2" * 32))
    assert len(models(recorder)) == 2


def test_a_model_that_a_killed_process_left_is_completed(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    run = open_child(recorder)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(recorder._client.mlflow, "log_outputs", interrupted)
        log(run)
    assert [str(model.status) for model in models(recorder)] == ["PENDING"]
    log(open_child(recorder))
    assert [str(model.status) for model in models(recorder)] == ["READY"]
    assert len(recorder._client.get_run(run.id).outputs.model_outputs) == 1


def interrupted(*_: object) -> None:
    raise KeyboardInterrupt


def test_a_finished_run_gets_no_model(recorder: Recorder) -> None:
    run = open_child(recorder)
    run.finish("result")
    assert log(run) is None and models(recorder) == []
