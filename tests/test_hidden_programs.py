"""With Chromium, Java, g++ or Docker hidden, each in turn, tests are skipped or pass.

The whole suite cannot run four times more. What runs is: every test with the mark of the hidden program, which must be
skipped; and those files of tests that read, plan, list or serve configurations and worlds which the program plays, and
that must need none. A program is hidden as on a machine that lacks it: it is not on the path, and the place of Chromium
is one where nothing is. So this proves that the marks work where they are, and that reading needs no program. That no
test elsewhere needs a program without saying so, only a machine without it proves.
"""

from __future__ import annotations

import os
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path

import pytest

from envs.browser.chromium import NAMED_BY

ROOT = Path(__file__).parents[1]
COMMANDS = {
    "chromium": ("*chrom*",),
    "java": ("java*",),
    "g++": ("*g++*", "c++", "clang++*"),
    "docker": ("docker*",),
}
"""The patterns of the commands that are hidden with each program."""

READING = (
    "tests/config/test_config.py::test_every_overlay_is_accepted",
    "tests/flows/test_missing_programs.py",
    "tests/flows/test_worlds_command.py::test_every_installed_world_is_listed_within_100_columns",
    "tests/lab/science/test_science_pages.py::test_every_relation_names_variants_that_its_ablation_has",
)
"""Configurations and worlds are read, and no program is needed."""

CONCERNED = {
    "chromium": (
        *READING,
        "tests/conformance/test_worlds_of_other_programs.py::test_the_world_keeps_its_contract[browser]",
        "tests/end_to_end/test_dvc.py::test_the_plots_are_a_page_that_opens_offline",
        "tests/end_to_end/test_pictures.py",
        "tests/envs/browser",
        "tests/flows/test_plots_page.py",
        "tests/reporting/test_episodes_in_browser.py",
        "tests/reporting/test_page_in_browser.py",
    ),
    "java": (
        *READING,
        "tests/conformance/test_worlds_of_other_programs.py::test_the_world_keeps_its_contract[sciworld]",
        "tests/envs/sciworld/test_sciworld.py",
        "tests/envs/sciworld/test_sciworld_processes.py",
        "tests/envs/sciworld/test_sciworld_without_java.py",
    ),
    "g++": (
        "tests/config/test_devices.py",
        "tests/policy/test_model.py::test_compiled_layers_compute_the_same_though_an_engine_turned_the_compiler_off",
    ),
    "docker": ("tests/test_containers.py",),
}
"""What runs with each program hidden."""


def environment_without(program: str, folder: Path) -> dict[str, str]:
    """The environment of a machine that has all that this one has, except one program."""
    for place in filter(Path.is_dir, map(Path, os.environ["PATH"].split(os.pathsep))):
        for command in place.iterdir():
            here = folder / command.name
            if not here.is_symlink() and not any(fnmatch(command.name, each) for each in COMMANDS[program]):
                here.symlink_to(command.absolute())
    without = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "CXX"))}
    return {**without, "PATH": str(folder), **({NAMED_BY: "/nowhere/chromium"} if program == "chromium" else {})}


@pytest.mark.parametrize("program", COMMANDS)
def test_without_a_program_tests_are_skipped_and_none_fails(program: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pytest", "-n", "0", "-p", "no:cacheprovider", "-rs", *CONCERNED[program]]
    ended = subprocess.run(
        command, cwd=ROOT, env=environment_without(program, tmp_path), capture_output=True, text=True, timeout=500
    )
    assert ended.returncode == 0, ended.stdout[-6000:] + ended.stderr[-2000:]
    assert (f"needs {program}: " in ended.stdout) == bool(files_with_the_mark(program)), ended.stdout[-6000:]


@pytest.mark.parametrize("program", COMMANDS)
def test_every_file_with_the_mark_of_a_program_runs_without_it(program: str) -> None:
    run = {ROOT / node.partition("::")[0] for node in CONCERNED[program]}
    left_out = [path for path in files_with_the_mark(program) if not run & {path, *path.parents}]
    assert not left_out, f"name them, or their tests with the mark, in CONCERNED[{program!r}]"


def files_with_the_mark(program: str) -> list[Path]:
    mark = f'mark.needs("{program}"'
    return [path for path in sorted((ROOT / "tests").rglob("test_*.py")) if mark in path.read_text()]
