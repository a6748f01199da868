"""Runs are found again in a real MLflow store, by what people know of them."""

from __future__ import annotations

import pytest

from turnwise.errors import ConfigurationError
from turnwise.store import Reference
from turnwise.tracking import Recorder
from turnwise.tracking.finding import (
    ARTIFACTS_FILE,
    PLAYERS_FILE,
    PlayersArtifacts,
    RunArtifacts,
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
        players = PlayersArtifacts(evaluations={"oracle": reference("evaluation", "e")})
        parent.log_text(players.model_dump_json(), PLAYERS_FILE)
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
    assert run.players == {"oracle": reference("evaluation", "e")}
    assert not run.finished


def test_an_ablation_stands_for_its_runs_by_name_and_by_the_beginning_of_its_id(store: str) -> None:
    runs = find_runs(store, "first")
    assert [(run.ablation, run.name) for run in runs] == [("first", "mt-grpo seed 1"), ("first", "mt-grpo seed 2")]
    (again,) = find_runs(store, runs[1].id[:8])
    assert again == runs[1]
    assert find_runs(store, runs[0].tags["mlflow.parentRunId"]) == runs


def test_a_tag_finds_every_run_that_has_it(store: str) -> None:
    assert [run.ablation for run in find_runs(store, "commit=first")] == ["first", "first"]
    with pytest.raises(ConfigurationError, match="none with the id, name or tag 'commit=none'"):
        find_runs(store, "commit=none")


def test_an_unknown_name_is_answered_with_those_that_are_known(store: str) -> None:
    with pytest.raises(ConfigurationError, match="'mt-grpo seed 2', 'mt-grpo seed 1', 'second', 'first'"):
        find_runs(store, "mt-grpo seed 3")


def test_a_run_that_has_made_nothing_is_refused_with_a_reason(store: str) -> None:
    with pytest.raises(ConfigurationError, match=r"has recorded no artifacts\.json: run it again"):
        find_runs(store, "nothing yet")
    with pytest.raises(ConfigurationError, match="'the latest ablation' has recorded no"):
        find_runs(store)
