"""The page that walks from a reward to the gradient names what there is, and its example runs."""

from __future__ import annotations

import ast
import doctest
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "from-reward-to-gradient.md"
MOST_FILES = 12
ROW = re.compile(r"^\| \d+ \| `([\w/]+\.py)` \|(.*)$", re.MULTILINE)
LIBRARY = [*(ROOT / "turnwise").rglob("*.py"), *(ROOT / "tasks").rglob("*.py")]


def defined_in(path: Path) -> set[str]:
    """The names of a file's functions, methods, classes and attributes, and of what it assigns."""
    tree = ast.parse(path.read_text())
    definitions = (ast.FunctionDef, ast.ClassDef)
    names = {node.name for node in ast.walk(tree) if isinstance(node, definitions)}
    targets = [node.target for node in ast.walk(tree) if isinstance(node, ast.AnnAssign)]
    return names | {target.id for target in targets if isinstance(target, ast.Name)}


def test_the_way_leads_through_few_files() -> None:
    files = [path for path, _ in ROW.findall(PAGE.read_text())]
    assert 0 < len(files) <= MOST_FILES and len({*files}) == len(files)
    assert {*re.findall(r"`([\w/]+\.py)`", PAGE.read_text())} - {*files} == {"tests/test_from_reward_to_gradient.py"}


def test_every_file_of_the_way_defines_what_its_row_names() -> None:
    for path, row in ROW.findall(PAGE.read_text()):
        named = {name.rpartition(".")[2] for name in re.findall(r"`([A-Za-z_.]+)`", row)}
        # torch defines what the gradient is computed by.
        elsewhere = {"backward"}
        assert named - elsewhere <= defined_in(ROOT / path), path


def test_what_lies_off_the_way_is_defined_somewhere() -> None:
    (aside,) = re.findall(r"Off this way lie.*?\n\n", PAGE.read_text(), re.DOTALL)
    defined = set().union(*map(defined_in, LIBRARY))
    names = re.findall(r"`(\w+)`", aside)
    assert len(names) == 5 and {*names} <= defined


def test_the_example_gives_the_arrays_that_the_page_shows() -> None:
    failed, tried = doctest.testfile(str(PAGE), module_relative=False)
    assert tried > 20 and failed == 0
