"""What is said after a run: commands that work in the folder in which it was run."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from flows.commands import options as naming
from flows.commands.cli import COMMANDS
from flows.commands.options import next_steps, own_command
from tests.own_view import let_see


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An environment in `.venv` of the current folder, whose programs the shell does not find by name."""
    programs = tmp_path / "project" / ".venv" / "bin"
    programs.mkdir(parents=True)
    for name in ("python", "turnwise"):
        (programs / name).write_text("#!/bin/sh\n")
        (programs / name).chmod(0o755)
    let_see(monkeypatch, naming, "sys", executable=str(programs / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.chdir(tmp_path / "project")
    return programs


def test_a_command_is_named_as_it_can_be_typed(
    environment: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert own_command() == ".venv/bin/turnwise"
    monkeypatch.chdir(tmp_path)
    assert own_command() == "project/.venv/bin/turnwise"
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert own_command() == str(environment / "turnwise")
    monkeypatch.setenv("PATH", str(environment))
    assert own_command() == "turnwise"


def test_another_environments_command_is_not_taken_for_this_ones(
    environment: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "turnwise").write_text("#!/bin/sh\n")
    (tmp_path / "turnwise").chmod(0o755)
    assert own_command() == ".venv/bin/turnwise"
    (environment / "turnwise").unlink()
    assert own_command() == f"{environment / 'python'} -m flows.commands.cli"


@pytest.mark.usefixtures("environment")
def test_the_next_steps_are_commands_that_there_are_and_name_what_was_run() -> None:
    steps = next_steps("credit", ["grpo-or", "mt-grpo"], [3, 4], "exact match")
    typed = [shlex.split(step)[1:] for step in steps]
    assert typed == [
        ["show", "credit/grpo-or seed 3", "--limit", "2"],
        ["compare", "credit"],
        ["lineage", "grpo-or/exact match"],
        ["ui"],
    ]
    names = {command.__name__ for commands in COMMANDS.values() for command in commands}
    assert {words[0] for words in typed} <= names


@pytest.mark.usefixtures("environment")
def test_a_single_variant_is_compared_with_nothing() -> None:
    assert not any(" compare " in step for step in next_steps("credit-base-1", ["base"], [1], "success"))
