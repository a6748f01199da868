"""A world whose package is not installed says which extra brings it; the other worlds do not ask for it."""

from __future__ import annotations

import subprocess
import sys

import pytest

EXTRAS = [
    ("babyai", "minigrid"),
    ("browser", "playwright"),
    ("sciworld", "scienceworld"),
    ("textcraft", "minecraft_data"),
    ("webarena", "playwright"),
]
CORE = ("bandit", "frozen_lake", "search", "sokoban", "webshop")
WITHOUT = """
import importlib.abc, sys

class Missing(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {packages}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Missing())
"""


def run_without(packages: set[str], code: str) -> str:
    """What a program prints for which these packages are not installed."""
    command = [sys.executable, "-c", WITHOUT.format(packages=sorted(packages)) + code]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize(("world", "package"), EXTRAS)
def test_a_world_whose_package_is_missing_names_the_extra(world: str, package: str) -> None:
    said = run_without(
        {package},
        f"""
from turnwise.world import make_world
try:
    make_world({world!r}, {{}})
except ValueError as error:
    print(error)
""",
    )
    assert said == (
        f"the world {world!r} needs the package {package}, which is not installed: pip install 'turnwise[{world}]' "
        "[TW-missing-package]\n"
    )


def test_the_core_worlds_need_no_extra() -> None:
    packages = {package for _, package in EXTRAS}
    code = f"from turnwise.world import make_world\nprint([make_world(name, {{}}).name for name in {CORE!r}])"
    assert run_without(packages, code) == f"{list(CORE)}\n"
