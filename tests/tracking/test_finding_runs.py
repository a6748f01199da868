"""Runs are found again in a real MLflow store, by what people know of them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from turnwise.errors import ConfigurationError
from turnwise.store import Reference
from turnwise.tracking import Recorder
from turnwise.tracking.finding import (
    ARTIFACTS_FILE,
    BASELINES_FILE,
    BaselinesArtifacts,
    RunArtifacts,
    find_all_runs,
    find_runs,
)


def reference(kind: str, digit: str) -> Reference:
    return Reference(kind=kind, digest=digit * 32)


def made(variant: str, seed: int) -> RunArtifacts:
    return RunArtifacts(
        variant=variant,
        seed=seed,
        experiment={"world": {"name": "search"}},
        prepared={"tokenizer": reference("tokenizer", "a")},
        start=reference("evaluation", "b"),
        iterations=[{"rollout": reference("rollout", "c"), "policy": reference("policy", "d")}],
    )


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Two ablations with runs of the same names, and one that has made nothing."""
    folder = tmp_path_factory.mktemp("mlflow")
    uri = f"sqlite:///{folder / 'mlflow.db'}"
    recorder = Recorder(uri, "turnwise", folder / "artifacts")
    for ablation in ("first", "second"):
        parent = recorder.parent(ablation, ablation, {})
        baselines = BaselinesArtifacts(evaluations={"oracle": reference("evaluation", "e")})
        parent.log_text(baselines.model_dump_json(), BASELINES_FILE)
        for seed in (1, 2):
            child = recorder.child(parent, f"mt-grpo seed {seed}", f"{ablation} {seed}", {}, {"commit": ablation})
            child.log_text(made("mt-grpo", seed).model_dump_json(), ARTIFACTS_FILE)
    recorder.parent("third", "third", {})
    bare = recorder.parent("bare", "bare", {})
    recorder.child(bare, "nothing yet", "nothing", {})
    return uri


def test_a_run_is_found_by_its_name_the_latest_of_several(store: str) -> None:
    (run,) = find_runs(store, "mt-grpo seed 2")
    assert (run.name, run.ablation) == ("mt-grpo seed 2", "second")
    assert run.artifacts == made("mt-grpo", 2)
    assert run.baselines == {"oracle": reference("evaluation", "e")}
    assert not run.finished


def test_a_name_that_two_ablations_share_is_answered_with_the_newest_and_how_to_name_the_other(
    store: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert [run.ablation for run in find_runs(store, "mt-grpo seed 1")] == ["second"]
    (record,) = caplog.records
    assert record.levelname == "WARNING" and record.getMessage() == (
        "'mt-grpo seed 1' names 2 that are recorded; this is the newest, 'second/mt-grpo seed 1'. "
        "To name another, say 'first/mt-grpo seed 1'"
    )
    caplog.clear()
    for ablation in ("first", "second"):
        (run,) = find_runs(store, f"{ablation}/mt-grpo seed 1")
        assert (run.ablation, run.name) == (ablation, "mt-grpo seed 1")
        assert find_runs(store, f"{run.tags['mlflow.parentRunId'][:6]}/mt-grpo seed 1") == [run]
    assert len(find_runs(store, "first")) == 2
    assert not caplog.records, "a name that means one thing is no reason for a warning"


def test_ablations_and_runs_that_share_their_full_name_are_told_apart_by_id(
    migrated_database: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    uri = f"sqlite:///{shutil.copy(migrated_database, tmp_path / 'mlflow.db')}"
    recorder = Recorder(uri, "turnwise", tmp_path / "artifacts")
    runs = []
    for identity in ("before", "after"):  # of a change of the code
        parent = recorder.parent("credit", identity, {})
        runs.append((parent, recorder.child(parent, "grpo seed 1", identity, {})))
        runs[-1][1].log_text(made("grpo", 1).model_dump_json(), ARTIFACTS_FILE)
    (parent, run), (newest_parent, newest) = runs
    for wanted in ("credit/grpo seed 1", "grpo seed 1"):
        assert [found.id for found in find_runs(uri, wanted)] == [newest.id]
        assert f"the newest, {newest.id[:8]}. To name another, say {run.id[:8]}" in caplog.messages[-1]
    assert [found.id for found in find_runs(uri, "credit")] == [newest.id]
    assert f"the newest, {newest_parent.id[:8]}. To name another, say {parent.id[:8]}" in caplog.messages[-1]
    assert [found.id for found in find_runs(uri, parent.id[:8])] == [run.id]
    assert len(caplog.messages) == 3


def test_an_ablation_stands_for_its_runs_by_name_and_by_the_beginning_of_its_id(store: str) -> None:
    runs = find_runs(store, "first")
    assert [(run.ablation, run.name) for run in runs] == [("first", "mt-grpo seed 1"), ("first", "mt-grpo seed 2")]
    (again,) = find_runs(store, runs[1].id[:8])
    assert again == runs[1]
    assert find_runs(store, runs[0].tags["mlflow.parentRunId"]) == runs


def test_a_tag_finds_every_run_that_has_it(store: str) -> None:
    assert [run.ablation for run in find_runs(store, "commit=first")] == ["first", "first"]
    with pytest.raises(ConfigurationError, match=r"'commit=none'.*TW-unknown-run"):
        find_runs(store, "commit=none")


def test_a_database_without_runs_is_named_without_its_password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("turnwise.tracking.finding.TrackingClient.runs", lambda client: [])
    for find in (find_runs, find_all_runs):
        with pytest.raises(ConfigurationError, match=r"in db\.lab there is none(?! with).*TW-unknown-run"):
            find("postgresql://turnwise:secret@db.lab/mlflow")


def test_an_unknown_name_is_answered_with_those_that_are_known(store: str) -> None:
    with pytest.raises(ConfigurationError, match=r"'mt-grpo.*2'.*1'.*'second'.*TW-unknown-run"):
        find_runs(store, "mt-grpo seed 3")


def test_a_run_that_has_made_nothing_is_refused_with_a_reason(store: str) -> None:
    with pytest.raises(ConfigurationError, match=r"artifacts\.json.*TW-other-version"):
        find_runs(store, "nothing yet")
    with pytest.raises(ConfigurationError, match=r"ablation'.*TW-other-version"):
        find_runs(store)
