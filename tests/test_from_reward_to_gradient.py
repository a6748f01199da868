"""The page that walks from a reward to the gradient names what there is, and its example runs."""

from __future__ import annotations

import ast
import doctest
import inspect
import re
from pathlib import Path

import pytest

from turnwise.config.optimization import UpdateOptions
from turnwise.policy.learner.losses import LOSSES
from turnwise.policy.learner.settings import CLIPS

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "from-reward-to-gradient.md"
MOST_FILES, MOST_FORMS = 12, 10
VALUES = {"rewards", "turn_rewards", "outcome", "advantages"}
"""The names under which a reward, and what becomes of it, is a field of a class."""
BESIDE = {
    "World": "declares rewards, by name",
    "_Terms": "what the turn-level rules compare, inside their file",
    "RecordedEpisode": "what an outside agent's episode earned, until it is a trajectory",
    "Imported": "another system's trajectories, which are credited and not trained on",
    "_Episode": "one of these, as its file tells it",
    "_Reply": "one of its replies",
    "ReplyTokenInputs": "for the selection of tokens, which only some settings use",
}
"""Classes with such a field that a reward does not pass through on its way, each with what it is."""
ROW = re.compile(r"^\| \d+ \| `([\w/]+\.py)` \|(.*)$", re.MULTILINE)
LIBRARY = [*(ROOT / "turnwise").rglob("*.py"), *(ROOT / "tasks").rglob("*.py")]


def defined_in(path: Path) -> set[str]:
    """The names of a file's functions, methods, classes and attributes, and of what it assigns."""
    tree = ast.parse(path.read_text())
    definitions = (ast.FunctionDef, ast.ClassDef)
    names = {node.name for node in ast.walk(tree) if isinstance(node, definitions)}
    targets = [node.target for node in ast.walk(tree) if isinstance(node, ast.AnnAssign)]
    targets += [target for node in ast.walk(tree) if isinstance(node, ast.Assign) for target in node.targets]
    return names | {target.id for target in targets if isinstance(target, ast.Name)}


def test_the_way_leads_through_few_files() -> None:
    files = [path for path, _ in ROW.findall(PAGE.read_text())]
    assert 0 < len(files) <= MOST_FILES and len({*files}) == len(files)
    assert {*re.findall(r"`([\w/]+\.py)`", PAGE.read_text())} - {*files} == {"tests/test_from_reward_to_gradient.py"}


def test_a_reward_takes_few_forms_and_no_other_than_the_page_names() -> None:
    (named,) = re.findall(r"A reward takes ten forms:(.*?)\. A parameter", PAGE.read_text(), re.DOTALL)
    forms = re.findall(r"`(\w+)`", named)
    assert len(forms) <= MOST_FORMS
    assert {*forms} <= set().union(*map(defined_in, LIBRARY))
    rooms = [ROOT / "turnwise" / room for room in ("world", "data", "agent", "credit", "policy")]
    holders = {
        node.name
        for path in (path for room in rooms for path in room.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef) and VALUES & defined_in_class(node)
    }
    assert holders - BESIDE.keys() <= {*forms}, "a form that the page does not name"


def test_every_form_is_defined_in_a_file_of_the_way_and_every_file_is_used_by_another() -> None:
    page = PAGE.read_text()
    files = [ROOT / path for path, _ in ROW.findall(page)]
    (named,) = re.findall(r"A reward takes ten forms:(.*?)\. A parameter", page, re.DOTALL)
    world = ROOT / "turnwise" / "world" / "contract.py"  # where the way begins
    assert {*re.findall(r"`(\w+)`", named)} <= set().union(*map(defined_in, [world, *files]))
    imports = {path: imported_by(path) for path in files}
    for path in files:
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        users = [other for other in files if other != path and imports[other] & {module, module.rpartition(".")[0]}]
        is_loaded = module == "turnwise.policy.learner.learner"  # by the stage's `take_learner`, in one process or more
        assert users or is_loaded or path.is_relative_to(ROOT / "tasks"), f"no other file of the way imports {module}"


def imported_by(path: Path) -> set[str]:
    """The modules that a file imports names from."""
    return {node.module or "" for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ImportFrom)}


def defined_in_class(node: ast.ClassDef) -> set[str]:
    """The names of a class's annotated fields."""
    fields = [each.target for each in node.body if isinstance(each, ast.AnnAssign)]
    return {field.id for field in fields if isinstance(field, ast.Name)}


@pytest.mark.parametrize("option", [*UpdateOptions.model_fields])
def test_an_option_of_an_update_keeps_its_name_from_the_parameters_to_where_it_is_used(option: str) -> None:
    assert re.search(rf"^  {option}:", (ROOT / "params.yaml").read_text(), re.MULTILINE)
    users = [path for path in (ROOT / "turnwise" / "policy").rglob("*.py") if path.name != "settings.py"]
    as_keyword = {"loss_options"}  # its entries are the loss's own keyword arguments
    assert option in as_keyword or any(re.search(rf"\b{option}\b", path.read_text()) for path in users)


def test_the_clips_are_keyword_arguments_of_the_losses() -> None:
    arguments = {name for loss in LOSSES.values() for name in inspect.signature(loss).parameters}
    assert {*CLIPS} <= arguments & {*UpdateOptions.model_fields}


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
