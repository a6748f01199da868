"""What a Ray worker refuses is said as it is anywhere; only what is the cluster's fault is called so."""

from __future__ import annotations

import importlib
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from flows.workers import ray_cluster
from flows.workers.ray_cluster import RayWorkers, run_by_ray
from flows.workers.runs import FollowedRun, RunOrder
from turnwise.config.runner import Runner
from turnwise.errors import ConfigurationError, ContractError, TurnwiseError
from turnwise.project import start_folder


def waited_for(error: Exception, monkeypatch: pytest.MonkeyPatch) -> TurnwiseError:
    """What waiting raises for a run whose task has ended with this error, and of which nothing more is heard."""
    nothing: Any = None
    followed = FollowedRun(RunOrder(nothing, nothing, "grpo", 1), nothing)
    workers = RayWorkers(Runner(kind="ray", address="10.0.0.1:6379"), nothing)
    workers._futures["grpo seed 1"] = SimpleNamespace(result=lambda raise_on_failure: error)
    monkeypatch.setattr(workers, "_is_done", lambda name: True)
    monkeypatch.setattr(workers, "_hear", lambda followed: False)
    with pytest.raises(TurnwiseError) as raised:
        workers.wait(followed)
    return raised.value


@pytest.mark.parametrize("kind", [ConfigurationError, ContractError])
def test_what_a_worker_raises_on_purpose_is_raised_here(
    kind: type[TurnwiseError], monkeypatch: pytest.MonkeyPatch
) -> None:
    error = kind("reward goal of tool/1/train/3 must be a number; found None")
    assert waited_for(error, monkeypatch) is error


def test_whatever_else_ends_a_run_there_is_the_clusters(monkeypatch: pytest.MonkeyPatch) -> None:
    said = str(waited_for(OSError("the worker died.\nits log"), monkeypatch))
    assert "the Ray cluster at 10.0.0.1:6379 must make the run grpo seed 1; it has ended with: the worker died." in said


def test_a_worker_imports_from_the_folder_of_the_ablation_and_keeps_to_it_wherever_a_world_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project, elsewhere = tmp_path / "project", tmp_path / "elsewhere"
    project.mkdir()
    elsewhere.mkdir()
    (project / "world_of_a_ray_worker.py").write_text("HERE = True\n", encoding="utf-8")
    seen = []

    def make(*_: object) -> None:
        os.chdir(elsewhere)  # as a world does in a step
        seen.append((importlib.import_module("world_of_a_ray_worker").HERE, start_folder()))

    monkeypatch.setattr(ray_cluster, "_make", make)
    monkeypatch.syspath_prepend(tmp_path)  # and put the path back afterwards
    monkeypatch.chdir(elsewhere)
    run_by_ray("grpo seed 1", b"", None, str(project))
    assert seen == [(True, project)]
