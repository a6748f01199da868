"""No test replaces a part of the standard library for every thread of its process.

Threads of Prefect, of MLflow, of a browser and of other tests go on while a test runs: a `time.sleep` that only counts
sends them round and round. A test replaces a name in one of our modules: `tests/own_view.py`. This looks at how the
tests are written, so it knows `monkeypatch.setattr` and an assignment, on a module that the file has imported, on one
that another module has imported (`place.time`), or on a path of names (`"turnwise.policy.engines.vllm.os"`).
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
OF_THE_WHOLE_PROCESS = {
    "tests/end_to_end/network_guard/sitecustomize.py": "it guards each connection of a process that starts with it",
    "tests/end_to_end/forked_commands.py": "each command has a process of its own, whose arguments these are",
}
"""Files that replace something in the standard library on purpose, with the reason."""


def replaced(text: str) -> Iterator[str]:
    """What a file replaces in modules of the standard library: `time.sleep`."""
    tree = ast.parse(text)
    library = dict(_imported(tree))
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
            if node.func.attr in ("setattr", "delattr", "patch") and (found := _of_the_library(node.args[0], library)):
                yield found if len(node.args) == 1 else f"{found}.{ast.unparse(node.args[1])}"
        elif isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign | ast.Delete):
            targets = node.targets if isinstance(node, ast.Assign | ast.Delete) else [node.target]
            for target in targets:
                if isinstance(target, ast.Attribute) and (found := _of_the_library(target.value, library)):
                    yield f"{found}.{target.attr}"
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("unittest"):
            yield "unittest.mock, whose patches hold for every thread"


def _imported(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """The names under which a file knows modules of the standard library."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                first = alias.name.partition(".")[0]
                if first in sys.stdlib_module_names:
                    yield alias.asname or first, alias.name if alias.asname else first


def _of_the_library(target: ast.expr, library: dict[str, str]) -> str | None:
    """The module of the standard library that an expression names; None: it names none."""
    if isinstance(target, ast.Name):
        return library.get(target.id)
    if isinstance(target, ast.Attribute):
        if target.attr in sys.stdlib_module_names and isinstance(target.value, ast.Name | ast.Attribute):
            return target.attr
        return _of_the_library(target.value, library)
    if isinstance(target, ast.Constant) and isinstance(target.value, str):
        place, names = ROOT, target.value.split(".")
        while names and ((place / names[0]).exists() or (place / f"{names[0]}.py").exists()):
            place /= names.pop(0)  # turnwise/statistics is ours
        return next((name for name in names[:-1] if name in sys.stdlib_module_names), None)
    return None


def test_no_file_replaces_anything_in_the_standard_library() -> None:
    found = {str(path.relative_to(ROOT)): list(replaced(path.read_text())) for path in (ROOT / "tests").rglob("*.py")}
    mistakes = {name: what for name, what in found.items() if what and name not in OF_THE_WHOLE_PROCESS}
    assert not mistakes, "let one module of ours see another: tests/own_view.py"
    assert all(found[name] for name in OF_THE_WHOLE_PROCESS), "one replaces nothing any more: take it off the list"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("import time\nmonkeypatch.setattr(time, 'sleep', f)", ["time.'sleep'"]),
        ("import shutil as files\npatch.delattr(files, 'disk_usage')", ["shutil.'disk_usage'"]),
        ("import importlib.util\nmonkeypatch.setattr(importlib.util, 'find_spec', f)", ["importlib.'find_spec'"]),
        ("from turnwise.store import place\nmonkeypatch.setattr(place.time, 'sleep', f)", ["time.'sleep'"]),
        ("monkeypatch.setattr('turnwise.store.place.time.sleep', f)", ["time.f"]),
        ("import os\nos.access = f", ["os.access"]),
        ("from unittest import mock", ["unittest.mock, whose patches hold for every thread"]),
        ("from turnwise.store import place\nmonkeypatch.setattr(place, 'time', f)", []),
        ("monkeypatch.setattr('turnwise.store.place.time', f)", []),
        ("monkeypatch.setattr('turnwise.statistics.tasks.pairs', f)", []),
        ("import os\nos.environ['A'] = 'b'", []),
        ("import logging\nmonkeypatch.setattr(logging.getLogger(), 'handlers', [])", []),
    ],
)
def test_what_is_found(text: str, found: list[str]) -> None:
    assert list(replaced(text)) == found
