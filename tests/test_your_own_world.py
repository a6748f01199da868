"""docs/your-own-world.md does what it says: its code is taken out of it, checked, configured and played."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tasks.prepare.materials import DemonstrationParameters, demonstrations, task_set
from turnwise.config.schema import RetryOptions
from turnwise.data.trajectory_files import read_trajectories
from turnwise.experiment import load
from turnwise.store import default_store
from turnwise.training_runs.state import TaskSetParameters

ROOT = Path(__file__).parents[1]
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", (ROOT / "docs" / "your-own-world.md").read_text(), re.DOTALL)


def block(language: str) -> str:
    (found,) = (text for name, text in BLOCKS if name == language)
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """What the reader has after following the page."""
    (tmp_path / "till.py").write_text(block("python"))
    (tmp_path / "till.yaml").write_text(block("yaml"))
    return tmp_path


def turnwise(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The command, given in the reader's folder."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TURNWISE_HOME": str(folder / "home")}
    return subprocess.run(
        [sys.executable, "-c", "from flows.commands.cli import main; main()", *arguments],
        cwd=folder,
        env=environment,
        input=":oracle\n:quit\n",
        capture_output=True,
        text=True,
        timeout=300,
    )


def test_the_world_takes_60_lines() -> None:
    assert len(block("python").splitlines()) < 60


def test_the_world_passes_the_checker_from_the_readers_folder(folder: Path) -> None:
    result = turnwise(folder, "check", "till:Till")
    assert result.returncode == 0, result.stdout + result.stderr
    assert "The world 'till' keeps its contract: 21 of 21 checks passed." in result.stdout


def test_training_on_it_is_accepted_where_the_readers_parameters_are(folder: Path) -> None:
    (folder / "params.yaml").write_text((ROOT / "params.yaml").read_text())
    result = turnwise(folder, "ablation", "till.yaml", "--dry-run")
    assert result.returncode == 0, result.stdout + result.stderr
    assert "500 tasks of till:Till" in result.stdout and "Nothing was computed." in result.stdout


def test_the_world_is_found_by_its_entry_point(folder: Path) -> None:
    package = tomllib.loads(block("toml"))
    written = "".join(
        f"[{group}]\n" + "".join(f"{name} = {target}\n" for name, target in entries.items())
        for group, entries in package["project"]["entry-points"].items()
    )
    information = folder / "till-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: till\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text(written)
    played = turnwise(folder, "play", "till")
    assert "Pay the amount exactly, one coin at a time.\n1, 2, 5, 10 or 20.\n" in played.stdout
    assert "You left the episode." in played.stdout
    listed = turnwise(folder, "worlds")
    assert any(line.startswith("till ") for line in listed.stdout.splitlines()), listed.stdout + listed.stderr


def test_the_scripted_baselines_are_recorded_where_the_reader_says(folder: Path) -> None:
    result = turnwise(folder, "baselines", "till:Till", "--episodes", "200", "--folder", str(folder))
    assert result.returncode == 0, result.stderr
    assert "till:Till default oracle: success 1.000" in result.stdout
    page = (folder / "baselines.md").read_text()
    assert "| `till:Till` | default | random |" in page
    assert "| `till:Till` | Uniform over the five coins. |" in page
    assert "Figures that others have published" not in page


@pytest.mark.usefixtures("turnwise_home")
def test_the_configuration_is_accepted_and_demonstrations_are_made(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(folder)
    experiment = load(ROOT / "params.yaml", [folder / "till.yaml"])
    made = task_set.fn(TaskSetParameters(world=experiment.world, split="train", tasks=6))
    parameters = DemonstrationParameters(
        world=experiment.world,
        agent=experiment.agent,
        patience=RetryOptions.taken_from(experiment.rollout),
        seed=0,
        count=6,
        noise=0.0,
    )
    played = read_trajectories(default_store().folder(demonstrations.fn(parameters, task_set=made)))
    assert len(played) == 6 and all(each.success for each in played)
    assert played[0].turns[0].reply.startswith("<think> ")
