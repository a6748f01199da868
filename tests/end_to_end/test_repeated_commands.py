"""A command that has nothing to compute loads nothing that takes seconds, and starts no server."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from comparison import Computed
from project_copy import ROOT, copy_home, copy_project, environment, run

pytestmark = [pytest.mark.chain, pytest.mark.usefixtures("prefect_server")]

HEAVY = {"torch", "transformers", "vllm", "prefect", "mlflow", "matplotlib", "pandas", "scipy.stats"}


def imports_and_output(project: Path, *command: str) -> tuple[set[str], str]:
    """Which of the heavy libraries a command imports, and what it prints."""
    variables = {name: value for name, value in environment(project).items() if not name.startswith("PREFECT_")}
    answer = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "flows.commands.cli", *command],
        cwd=project,
        env=variables,
        capture_output=True,
        text=True,
        check=True,
    )
    return HEAVY & {line.rpartition("|")[2].strip() for line in answer.stderr.splitlines()}, answer.stdout


def test_to_ask_whether_an_ablation_is_recorded_nothing_is_asked_of_the_model(turnwise_home: Path) -> None:
    """The default experiment begins from a policy in a folder, whose sizes only transformers and torch can tell."""
    code = """
import sys
from pathlib import Path
from flows.plan import plan_ablation
from turnwise.experiment import load
experiment = load(Path("params.yaml"))
assert experiment.policy.model != "scratch" and not plan_ablation(experiment).is_recorded
print(" ".join(sys.modules))
"""
    loaded = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert HEAVY & set(loaded.split()) == set()


def test_a_repeat_and_a_look_at_what_is_recorded_import_nothing_heavy(tiny_ablation: Computed, tmp_path: Path) -> None:
    project = copy_project(tmp_path / "project")
    copy_home(tiny_ablation.home, project / ".turnwise")
    run(project, "flows.commands.cli", "ablation")  # draws the report into this project, and records it
    server = project / ".turnwise" / "prefect" / "server.json"
    server.unlink(missing_ok=True)
    loaded, said = imports_and_output(project, "ablation", "--processes", "2")
    assert loaded == set() and " 0 computed" in said and tiny_ablation.digest in said
    assert not server.exists()
    for command in (["show"], ["compare", "tiny"], ["lineage", "mt-grpo/success"], ["--help"], ["play", "--help"]):
        assert imports_and_output(project, *command)[0] == set(), command
