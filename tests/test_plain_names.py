"""Names are nouns of what a thing is: none is a past participle that stands for a thing, and none begins with `of_`."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
RIDDLES = {
    "asked", "called", "chosen", "drawn", "found", "given", "gone", "held", "kept", "lost", "made", "sent", "shown",
    "taken", "told",
}  # fmt: skip
EXEMPT = {
    ("flows/credit_study.py", "found"),
    ("flows/python/recorded.py", "found"),
    ("flows/python/what_if.py", "shown"),
    ("flows/report.py", "found"),
    ("tasks/update/first_steps.py", "taken"),
    ("turnwise/agent/formats/contract.py", "shown"),
    ("turnwise/agent/formats/native_tools.py", "shown"),
    ("turnwise/agent/formats/react.py", "shown"),
    ("turnwise/agent/formats/tool_json.py", "shown"),
    ("turnwise/agent/formats/validated.py", "shown"),
    ("turnwise/agent/loop.py", "lost"),
    ("turnwise/checking/report.py", "found"),
    ("turnwise/credit/batch.py", "of_turns"),
    ("turnwise/credit/selection.py", "kept"),
    ("turnwise/data/trajectory.py", "asked"),
    ("turnwise/health/initial_signal.py", "found"),
    ("turnwise/policy/learner/first_step.py", "taken"),
    ("turnwise/records/what_if.py", "shown"),
    ("turnwise/statistics/curves.py", "shown"),
    ("turnwise/store/retention.py", "kept"),
    ("turnwise/training_runs/state.py", "made"),
}
"""Files and names that are older: users call them, or files and tables have them."""


def _names(tree: ast.AST) -> Iterator[str]:
    """What a module binds: variables, parameters, fields, functions and classes."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.arg):
            yield node.arg


def test_no_name_is_a_riddle() -> None:
    packages = ("turnwise", "flows", "tasks", "envs", "lab")
    files = [path for package in packages for path in (ROOT / package).rglob("*.py")]
    riddles = {
        (path.relative_to(ROOT).as_posix(), name)
        for path in files
        for name in _names(ast.parse(path.read_text(encoding="utf-8")))
        if name.strip("_") in RIDDLES or name.lstrip("_").startswith("of_")
    }
    assert len(files) > 500
    assert riddles == EXEMPT
