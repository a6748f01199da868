"""A horizon that grows, through the real chain: in stages and by its own judgement, killed where it grows and resumed.

The engine is the embedded one, which starts sooner; that a killed run of vLLM's resumes is shown by `test_chain`.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from comparison import compared, tiny_experiment
from project_copy import ROOT, TINY

pytestmark = [pytest.mark.engine, pytest.mark.chain]

CURRICULA = {
    "staged": {"rule": "staged", "options": {"limits": [1, 2], "lengths": 2}},
    "adaptive": {
        "rule": "adaptive",
        "options": {"first": 1, "window": 2, "tolerance": 0.9, "standard_errors": 0.0, "share": 0.01},
    },
}
SETTINGS = [
    f"variants={json.dumps({name: {'curriculum': curriculum} for name, curriculum in CURRICULA.items()})}",
    "ablation.variants=[staged, adaptive]",
    "optimization.iterations=6",
    "evaluation.every=3",
    # What is no horizon costs as little as it can.
    "rollout.prompts=4",
    "data.validation_tasks=4",
    "data.test_tasks=2",
    "evaluation.samples=1",
    "monitors.probe_every=null",
]
LIMITS = {"staged": [1, 1, 2, 2, 2, 2], "adaptive": [1, 1, 1, 1, 2, 2]}
AT_THE_BOUNDARY = 3
"""Rollouts that there are when the first of the second stage has ended."""
AFTER_GROWTH = 9
"""And when the adaptive variant, which shares two with the staged one, has played for the first time after growing."""


def finished(home: Path) -> str:
    """The digest of the ablation, computed in this process as far as it is not yet."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TURNWISE_HOME", str(home))
        return compared(tiny_experiment(SETTINGS), home / "results").digest


def artifacts(home: Path, kind: str) -> list[str]:
    return sorted(path.parent.name for path in (home / "store" / kind).glob("*/manifest.json"))


def histories(home: Path) -> dict[str, dict[str, dict[int, float]]]:
    """By variant and metric, the value at each iteration."""
    import mlflow

    client = mlflow.MlflowClient(f"sqlite:///{home / 'mlflow.db'}")
    (experiment,) = (each for each in client.search_experiments() if each.name == "turnwise")
    found = {}
    for entity in client.search_runs([experiment.experiment_id]):
        points = {name: client.get_metric_history(entity.info.run_id, name) for name in entity.data.metrics}
        found[str(entity.info.run_name).split(" ")[0]] = {
            name: {point.step: point.value for point in history} for name, history in points.items()
        }
    return found


@pytest.fixture(scope="module")
def undisturbed(prefect_server: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    """A home in which the ablation has run without being killed, and its digest."""
    home = tmp_path_factory.mktemp("undisturbed")
    yield home, finished(home)


def test_every_iteration_tells_its_limit_and_what_came_of_it(undisturbed: tuple[Path, str]) -> None:
    for variant, found in histories(undisturbed[0]).items():
        if variant not in LIMITS:
            continue
        assert list(found["horizon/limit"].values()) == LIMITS[variant]
        assert all(0 <= share <= 1 for share in found["horizon/share_at_limit"].values())
        for iteration, limit in enumerate(LIMITS[variant], start=1):
            assert found["rollout/turns"][iteration] <= limit


def test_policies_are_evaluated_at_the_full_limit_and_at_that_of_training_where_it_is_shorter(
    undisturbed: tuple[Path, str],
) -> None:
    found = histories(undisturbed[0])
    for variant in LIMITS:
        full, at_horizon = (
            found[variant][f"{task_set}/sampled/turns"] for task_set in ("validation", "validation_at_horizon")
        )
        assert list(full) == [0, 3, 6]
        assert max(at_horizon.values()) == 1.0 < max(full.values())
    assert list(found["staged"]["validation_at_horizon/sampled/turns"]) == [0]
    assert list(found["adaptive"]["validation_at_horizon/sampled/turns"]) == [0, 3]


def test_a_run_that_is_killed_where_its_horizon_grows_ends_with_the_same_digests(
    undisturbed: tuple[Path, str], prefect_server: str, tmp_path: Path
) -> None:
    home = tmp_path / "killed"
    for rollouts in (AT_THE_BOUNDARY, AFTER_GROWTH):
        kill_at(rollouts, home, prefect_server, tmp_path / "output")
    assert finished(home) == undisturbed[1]
    assert artifacts(home, "health") == artifacts(undisturbed[0], "health")
    assert artifacts(home, "policy") == artifacts(undisturbed[0], "policy")


def kill_at(rollouts: int, home: Path, prefect_server: str, output: Path) -> None:
    """Run the ablation in a process of its own until it has made so many rollouts, and kill it."""
    environment = {**os.environ, "TURNWISE_HOME": str(home), "PREFECT_API_URL": prefect_server}
    settings = [word for setting in SETTINGS for word in ("-s", setting)]
    with output.open("wb") as written:
        started = subprocess.Popen(
            [sys.executable, "-m", "flows.commands.cli", "ablation", str(TINY), *settings],
            cwd=ROOT,
            env=environment,
            stdout=written,
            stderr=written,
            start_new_session=True,
        )
        deadline = time.monotonic() + 500
        while len(artifacts(home, "rollout")) < rollouts:
            assert started.poll() is None and time.monotonic() < deadline, output.read_text()
            time.sleep(0.02)
        os.killpg(started.pid, signal.SIGKILL)
        started.wait()
