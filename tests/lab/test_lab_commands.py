"""The commands of `lab`: a clone has them wherever it is called from; an installed package does without them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from setuptools import find_packages

from lab.commands import COMMANDS

ROOT = Path(__file__).parents[2]
NAMES = sorted(command.__name__ for command in COMMANDS)


def commands_listed(folder: Path, working_folder: Path) -> list[str]:
    """The commands that the help of the package in a folder lists, called from another."""
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    said = subprocess.run(
        [sys.executable, "-m", "flows.commands.cli", "--help"],
        cwd=working_folder,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert said.returncode == 0, said.stderr
    return [line.split()[1] for line in said.stdout.splitlines() if line.startswith("│ ") and line[2] != " "]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the packages that are installed, and nothing else of the project."""
    folder = tmp_path_factory.mktemp("installed")
    for package in ("turnwise", "tasks", "flows", "envs"):
        shutil.copytree(ROOT / package, folder / package, ignore=shutil.ignore_patterns("__pycache__", "base"))
    return folder


def test_a_clone_has_the_commands_from_any_folder(tmp_path: Path) -> None:
    assert set(NAMES) < set(commands_listed(ROOT, tmp_path))


def test_the_command_line_that_make_installs_has_the_commands_too(tmp_path: Path) -> None:
    program = Path(sys.executable).parent / "turnwise"
    said = subprocess.run([program, "science", "--help"], cwd=tmp_path, capture_output=True, text=True)
    assert said.returncode == 0 and "docs/science" in said.stdout, said.stderr


def test_an_installed_package_has_every_other_command(installed: Path, tmp_path: Path) -> None:
    listed = commands_listed(installed, tmp_path)
    assert "credit" in listed and "ablation" in listed
    assert sorted({*commands_listed(ROOT, tmp_path)} - {*listed}) == NAMES


def test_a_lab_of_the_users_own_is_left_alone(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "lab").mkdir()
    (tmp_path / "lab" / "__init__.py").write_text("raise SystemExit('this is another lab')")
    for folder in (installed, ROOT):
        assert not set(NAMES) & set(commands_listed(folder, tmp_path))


def test_setuptools_packs_no_module_of_it() -> None:
    import tomllib

    found = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]["find"]
    packages = find_packages(str(ROOT), include=found["include"])
    assert "turnwise.credit_study" in packages
    assert [name for name in packages if name.partition(".")[0] in ("lab", "tests", "benchmarks")] == []
