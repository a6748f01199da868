"""Every error that is raised on purpose has a code, and a code stays with its error wherever that goes."""

from __future__ import annotations

import ast
import pickle
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import BaseModel, ValidationError, field_validator

from docs.error_codes import raised_codes
from turnwise.config.messages import explain
from turnwise.errors import ConfigurationError, DiskFull, TrainingEnded, TurnwiseError

ROOT = Path(__file__).parents[1]
ROOMS = ("turnwise", "flows", "tasks", "envs", "lab")
FORM = r"TW(?:-[a-z]+)+"


def kinds(kind: type[TurnwiseError] = TurnwiseError) -> Iterator[type[TurnwiseError]]:
    yield kind
    for each in kind.__subclasses__():
        yield from kinds(each)


KINDS = {kind.__name__ for kind in kinds()} | {"WorkerFailed", "WorkerLost"}


def name_of(expression: ast.AST) -> str:
    """The last name of `errors.ConfigurationError`."""
    return getattr(expression, "id", getattr(expression, "attr", ""))


def without_code(source: str) -> list[int]:
    """The lines that make a Turnwise error without a code, unless it repeats one: the caught one, or `explain`'s."""
    tree, repeats = ast.parse(source), set()
    for handler in ast.walk(tree):
        if isinstance(handler, ast.ExceptHandler) and handler.type is not None:
            caught = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
            if all(name_of(each) in KINDS for each in caught):
                repeats |= {
                    call for call in ast.walk(handler) if isinstance(call, ast.Call) and uses(call, handler.name)
                }
    calls = [each for each in ast.walk(tree) if isinstance(each, ast.Call) and name_of(each.func) in KINDS]
    return sorted(
        call.lineno for call in calls if len(call.args) < 2 and not (call in repeats or uses(call, "explain"))
    )


def uses(call: ast.Call, name: str | None) -> bool:
    return any(name_of(each) == name for each in ast.walk(call) if name)


def test_the_table_in_the_documentation_has_every_code_once_with_what_it_means() -> None:
    written = {code for path in modules() for code in re.findall(rf'"({FORM})"', path.read_text())}
    table = raised_codes()
    assert set(table) == written
    assert [code for code, messages in table.items() if not all(messages) or len(set(messages)) < len(messages)] == []


def modules() -> list[Path]:
    return sorted(
        path for room in ROOMS for path in ([ROOT / room] if room.endswith(".py") else (ROOT / room).rglob("*.py"))
    )


def test_every_error_that_is_raised_on_purpose_has_a_code() -> None:
    assert {path.name: lines for path in modules() if (lines := without_code(path.read_text()))} == {}


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ("raise ConfigurationError('a')", [1]),
        ("raise ConfigurationError('a', 'TW-a')", []),
        ("try:\n    f()\nexcept ConfigurationError as error:\n    raise ConfigurationError(f'a: {error}')", []),
        ("try:\n    f()\nexcept (CreditError, ValueError) as error:\n    raise ConfigurationError(f'a: {error}')", [4]),
        ("try:\n    f()\nexcept ConfigurationError as error:\n    raise ConfigurationError('a')", [4]),
        ("raise errors.WorldLost(explain(error, model))", []),
    ],
)
def test_an_error_without_a_code_would_be_noticed(source: str, lines: list[int]) -> None:
    assert without_code(source) == lines


def test_every_code_is_of_words() -> None:
    codes = [code for path in modules() for code in re.findall(r'"(TW-[^"]*)"', path.read_text())]
    assert codes and [code for code in codes if not re.fullmatch(FORM, code)] == []


@pytest.mark.parametrize("kind", sorted(kinds(), key=lambda kind: kind.__name__), ids=lambda kind: kind.__name__)
def test_an_error_keeps_its_code_when_it_is_sent_to_another_process(kind: type[TurnwiseError]) -> None:
    error = pickle.loads(pickle.dumps(kind("seeds must differ; found [1, 1]", "TW-repeated-seeds")))
    assert type(error) is kind
    assert str(error) == "seeds must differ; found [1, 1] [TW-repeated-seeds]"
    assert (error.code, error.message) == ("TW-repeated-seeds", "seeds must differ; found [1, 1]")


def test_an_error_of_a_plugin_needs_no_code() -> None:
    error = ConfigurationError("a world of one's own needs a map [of any size]")
    assert (str(error), error.code) == ("a world of one's own needs a map [of any size]", "")


def test_an_error_that_repeats_another_keeps_the_code_of_that() -> None:
    inner = ConfigurationError("no world is called 'lake'", "TW-unknown-world")
    assert str(ConfigurationError(f"world.name: {inner}", "TW-plugin-import")) == f"world.name: {inner}"
    assert DiskFull(f"{inner}\nand two more").code == "TW-unknown-world"


def test_a_fault_that_ends_a_run_has_a_code_beside_its_guard() -> None:
    error = pickle.loads(pickle.dumps(TrainingEnded("it diverged", "TW-not-finite", "not_finite")))
    assert (str(error), error.fault) == ("it diverged [TW-not-finite]", "not_finite")


class Section(BaseModel, extra="forbid"):
    size: int = 1
    share: float = 0.5

    @field_validator("share")
    @classmethod
    def _require_share(cls, share: float) -> float:
        if not 0.0 < share < 1.0:
            raise ConfigurationError("must be a share", "TW-no-share")
        return share


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"sise": 2}, r"sise: 'sise' is not a known name; did you mean 'size'\? \[TW-unknown-option\]"),
        ({"size": "a"}, r"size.*; found 'a' \[TW-option-type\]"),
        ({"share": 2.0}, r"share must be a share; found 2\.0 \[TW-no-share\]"),
        ({"size": "a", "share": 2.0}, r"size.* \[TW-option-type\]\nshare.* \[TW-no-share\]"),
    ],
)
def test_each_mistake_that_pydantic_finds_has_a_code(values: dict[str, object], text: str) -> None:
    with pytest.raises(ValidationError) as caught:
        Section.model_validate(values)
    assert re.fullmatch(text, explain(caught.value, Section))
