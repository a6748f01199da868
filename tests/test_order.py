"""Tests come in random order, and an order in which something failed can be asked for."""

from __future__ import annotations

import re
import shlex
import subprocess
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FILES = ("tests/data/test_arrays.py", "tests/data/test_metrics.py", "tests/end_to_end/test_readme.py")


@pytest.mark.skipif(find_spec("pytest_randomly") is None, reason="pytest-randomly is not installed: make setup")
def test_the_order_of_a_run_is_told_and_can_be_asked_for() -> None:
    def collected(order: str) -> list[str]:
        made = subprocess.run(
            ["make", "--no-print-directory", "-n", "-o", ".venv/ready", "test", f"ORDER={order}"], **said
        )
        command = [*shlex.split(made.stdout.splitlines()[-1]), "-n", "0", "--collect-only", *FILES]
        lines = subprocess.run(command, **said).stdout.splitlines()
        assert any(line == f"The order was --randomly-seed={order}" for line in lines), lines
        return [line for line in lines if "::" in line]

    said = {"cwd": ROOT, "capture_output": True, "text": True, "check": True}
    first, other = collected("1"), collected("2")
    assert first != other and sorted(first) == sorted(other)
    assert first[0].startswith("tests/end_to_end/"), "the longest files begin"
    commands = [re.search(r"does_what_it_says\[(.*)\]$", line) for line in (*first, *other)]
    told = [found[1] for found in commands if found]
    assert told[: len(told) // 2] == told[len(told) // 2 :], "the README's commands come as they are written"
