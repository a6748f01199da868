"""`turnwise init` and `turnwise new` write what can be checked and run at once."""

from __future__ import annotations

import importlib.metadata
import re
import runpy
import subprocess
import sys
import tomllib
from collections.abc import Callable
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml

from flows.commands import options as naming
from flows.commands.cli import status_of
from tests.own_view import let_see
from turnwise.experiment import load
from turnwise.world import Remaining, Split, make_world

ROOT = Path(__file__).parents[2]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a stranger stands: outside the clone, with nothing in the folder."""
    monkeypatch.setenv("TURNWISE_HOME", str(tmp_path / "home"))
    (tmp_path / "mine").mkdir()
    monkeypatch.chdir(tmp_path / "mine")
    monkeypatch.syspath_prepend(str(tmp_path / "mine"))
    return tmp_path / "mine"


def test_a_new_world_keeps_the_contract(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert status_of(["new", "world", "first_task"]) == 0
    assert sorted(path.name for path in folder.iterdir()) == ["first_task.py", "first_task.yaml"]
    assert "turnwise check first_task:FirstTask" in capsys.readouterr().out
    assert status_of(["check", "first_task:FirstTask"]) == 0
    assert "21 of 21 checks passed" in capsys.readouterr().out


def test_the_splits_of_a_new_world_share_no_problem_and_are_as_hard_for_its_oracle(folder: Path) -> None:
    status_of(["new", "world", "split_task"])
    world = make_world("split_task:SplitTask", {})
    hidden: dict[str, list[int]] = {}
    asked: dict[str, list[int]] = {}
    for split in get_args(Split):
        for task in world.tasks(split, 400):
            environment = world.make(task, 0)
            environment.reset()
            questions, done = 0, False
            while not done:
                action = environment.oracle(Remaining(turns=6, actions_per_turn=1, actions=6)).actions[0]
                done, questions = environment.step(action).terminated, questions + 1
            hidden.setdefault(split, []).append(int(action))
            asked.setdefault(split, []).append(questions)
    assert sorted(each for numbers in hidden.values() for each in set(numbers)) == list(range(1, 61))
    means = [sum(each) / len(each) for each in asked.values()]
    assert max(means) - min(means) < 0.5, "questions of about five"


def test_a_new_world_can_be_trained_on_with_the_default_parameters(folder: Path) -> None:
    status_of(["new", "world", "second_task"])
    experiment = load(ROOT / "params.yaml", [folder / "second_task.yaml"])
    assert experiment.world.name == "second_task:SecondTask"
    assert experiment.ablation.variants == ["grpo", "rloo"]


@pytest.mark.parametrize(("kind", "checks"), [("rule", 10), ("reward", 5)])
def test_a_new_rule_or_reward_keeps_its_contract_passes_its_test_and_can_be_trained_with(
    kind: str, checks: int, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = f"first_{kind}"
    assert status_of(["new", kind, name]) == 0
    assert sorted(path.name for path in folder.iterdir()) == [f"{name}.py", f"{name}.yaml", f"test_{name}.py"]
    assert not any(f"own_{kind}" in path.read_text() for path in folder.iterdir())
    said = capsys.readouterr().out
    check, test, *_ = said[said.index("next:\n") :].splitlines()[1:]
    assert check.endswith(f"turnwise check {name}:{name}") and test.endswith(f"pytest test_{name}.py")
    assert status_of(["check", f"{name}:{name}"]) == 0
    assert f"{checks} of {checks} checks passed" in capsys.readouterr().out
    for test in functions_of(folder / f"test_{name}.py"):
        test()
    for parameters in (ROOT / "params.yaml", ROOT / "flows" / "commands" / "starters" / "params.yaml"):
        status_of(["new", "world", "number_game"])
        experiment = load(parameters, [folder / f"{name}.yaml"])
        assert name in f"{experiment.variant(experiment.ablation.variants[1]).model_dump()}"


def test_a_world_that_no_pretrained_policy_has_seen_begins_with_demonstrations(folder: Path) -> None:
    assert status_of(["new", "world", "unseen_task"]) == 0
    for parameters in (ROOT / "params.yaml", ROOT / "flows" / "commands" / "starters" / "params.yaml"):
        experiment = load(parameters, [folder / "unseen_task.yaml"])
        assert experiment.warm_start.enabled and experiment.data.demonstrations >= 500


def test_a_name_that_yaml_reads_as_no_text_is_refused_and_nothing_is_written(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("true", "null"):
        assert status_of(["new", "reward", name]) != 0
        assert "TW-name-form" in capsys.readouterr().err
    assert list(folder.iterdir()) == []


def test_the_next_commands_are_given_as_they_can_be_typed(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    programs = tmp_path / "mine" / ".venv" / "bin"
    programs.mkdir(parents=True)
    for name in ("python", "turnwise", "pytest"):
        (programs / name).write_text("#!/bin/sh\n")
        (programs / name).chmod(0o755)
    let_see(monkeypatch, naming, "sys", executable=str(programs / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert status_of(["new", "rule", "typed_rule"]) == 0
    # There is no params.yaml here, without which nothing can be trained.
    needs = "in a folder with a params.yaml, which `turnwise init` makes: .venv/bin/turnwise ablation typed_rule.yaml"
    assert capsys.readouterr().out.split("next:\n")[1].splitlines() == [
        "  .venv/bin/turnwise check typed_rule:typed_rule",
        "  .venv/bin/pytest test_typed_rule.py",
        f"  {needs} --dry-run",
        f"  {needs}",
    ]
    assert status_of(["init", "below", "--world", "typed_world"]) == 0
    assert capsys.readouterr().out.split("next:\n")[1].splitlines()[:2] == [
        "  cd below",
        f"  {programs / 'turnwise'} check typed_world:TypedWorld",
    ]
    assert status_of(["init", "my own", "--world", "typed_world_too"]) == 0
    assert capsys.readouterr().out.split("next:\n")[1].splitlines()[0] == "  cd 'my own'"


def functions_of(path: Path) -> list[Callable[[], None]]:
    """The tests of a file, as pytest finds them."""
    found = [test for name, test in runpy.run_path(str(path)).items() if name.startswith("test_")]
    assert len(found) == 2
    return found


def test_a_new_folder_holds_an_experiment_that_can_be_run(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert status_of(["init", ".", "--world", "third_task"]) == 0
    said = capsys.readouterr().out
    assert sorted(path.name for path in folder.iterdir()) == [
        ".gitignore", "README.md", "dvc.yaml", "params.yaml", "plots.html", "requirements.txt", "third_task.py",
    ]  # fmt: skip
    assert "wrote params.yaml" in said and "turnwise ablation --dry-run" in said
    assert not any("number_game" in path.read_text() for path in folder.iterdir() if path.is_file())
    assert (folder / "requirements.txt").read_text() == f"turnwise=={importlib.metadata.version('turnwise')}\n"
    assert status_of(["ablation", "--dry-run"]) == 0
    assert "Nothing was computed." in capsys.readouterr().out


def test_a_folder_of_ones_own_has_dvcs_stages_of_the_default_experiment(folder: Path) -> None:
    status_of(["init", ".", "--world", "fourth_task"])
    mine, ours = (yaml.safe_load((place / "dvc.yaml").read_text())["stages"] for place in (folder, ROOT))
    assert list(mine) == list(ours)
    for name, stage in mine.items():
        assert stage["cmd"] == ours[name]["cmd"].replace("${run}", "turnwise stage")
        of_ours = [
            "requirements.txt" if each == "requirements/cpu.lock" else each for each in ours[name].get("deps", [])
        ]
        assert stage.get("deps", []) == of_ours
        assert without_dependencies(stage) == without_dependencies(ours[name])


def test_dvcs_plots_of_a_folder_of_ones_own_open_offline(folder: Path) -> None:
    """The commands of its README, up to the run itself, and a curve to draw in place of one that a run has made."""
    status_of(["init", ".", "--world", "fifth_task"])
    readme = (folder / "README.md").read_text()
    (folder / "curve.csv").write_text("iteration,success\n0,0.1\n1,0.4\n")
    dvc = [sys.executable, "-m", "dvc"]
    assert "git init && dvc init\ndvc config plots.html_template ../plots.html\n" in readme
    for command in (["git", "init"], [*dvc, "init"], [*dvc, "config", "plots.html_template", "../plots.html"]):
        subprocess.run(command, cwd=folder, check=True, capture_output=True)
    subprocess.run([*dvc, "plots", "show", "curve.csv"], cwd=folder, check=True, capture_output=True)
    page = (folder / "dvc_plots" / "index.html").read_text()
    assert "curve.csv" in page and re.findall(r'(?:src|href)="(?!#)', page) == []
    status = subprocess.run(["git", "status", "--short"], cwd=folder, check=True, capture_output=True, text=True)
    assert "?? curve.csv" in status.stdout and "dvc_plots" not in status.stdout, "Git does not see what is drawn"


def without_dependencies(stage: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in stage.items() if key not in ("cmd", "deps")}


def test_nothing_is_overwritten(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "sixth_task.yaml").write_text("mine: true\n")
    assert status_of(["new", "world", "sixth_task"]) == 2
    assert "nothing is overwritten; found sixth_task.yaml" in capsys.readouterr().err
    assert [path.name for path in folder.iterdir()] == ["sixth_task.yaml"]


def test_the_installed_package_has_what_init_writes() -> None:
    """A wheel holds only the data files that pyproject.toml names."""
    patterns = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]
    starters = [path for path in (ROOT / "flows" / "commands" / "starters").iterdir() if path.is_file()]
    data = {path.name for path in starters if path.suffix != ".py"}
    assert data == {
        "README.md",
        "gitignore",
        "number_game.yaml",
        "own_reward.yaml",
        "own_rule.yaml",
        "params.yaml",
        "plots.html",
        "stages.yaml",
    }
    named = patterns["flows.commands.starters"]
    assert [name for name in data if not any(fnmatch(name, each) for each in named)] == []
