"""What a cache key has of plug-ins besides their code: versions of packages, and contents of files."""

from __future__ import annotations

import importlib
import importlib.metadata
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from corridor_worlds import Corridor

from turnwise.config.schema import Section, WorldSection
from turnwise.errors import ConfigurationError
from turnwise.plugins import versions
from turnwise.store import plugin_identity
from turnwise.store.plugin_identity import (
    Outside,
    from_outside,
    known_by_content,
    outside_file,
    plugin_ingredients,
    what_it_reads,
    world_digest,
    world_ingredients,
)


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "identified_rule.py").write_text("import json\n\nimport numpy as np\n\nimport identified_part\n")
    (tmp_path / "identified_part.py").write_text("import scipy\n")
    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()
    return "identified_rule"


def test_packages_that_the_code_imports_count_by_version_also_those_of_its_own_files(module: str) -> None:
    found = plugin_ingredients([module], ["pydantic"])["packages"]
    assert found == versions(["numpy", "pydantic", "scipy"])


def test_files_count_by_content_under_a_name_without_their_place(module: str, tmp_path: Path) -> None:
    one, other = tmp_path / "one.txt", tmp_path / "other.txt"
    one.write_text("a")
    other.write_text("a")
    of_one, of_other = (plugin_ingredients([module], files={"prompt": path}) for path in (one, other))
    assert of_one == of_other
    other.write_text("b, longer")
    assert plugin_ingredients([module], files={"prompt": other}) != of_one


def test_without_plugins_nothing_is_added() -> None:
    assert plugin_ingredients([], ["numpy"]) == {}


class Library(Corridor):
    """A corridor that reads a book and shelves, needs two packages, one of which is not there, and has a state."""

    doors = 3

    def __init__(self, *, book: str = "", shelf: dict[str, str] | None = None, pages: int = 1, turns: int = 6) -> None:
        super().__init__(turns=turns)

    @classmethod
    def files(cls, parameters: Mapping[str, Any]) -> Mapping[str, Path | None]:
        shelf = parameters.get("shelf", {}).get("folder")
        return {"book": Path(parameters["book"]), "shelf.folder": Path(shelf) if shelf else None}

    @classmethod
    def distributions(cls, parameters: Mapping[str, Any]) -> tuple[str, ...]:
        return ("numpy", "no-such-package")

    @classmethod
    def state(cls, parameters: Mapping[str, Any]) -> Mapping[str, str]:
        return {"doors": str(cls.doors)}


@pytest.fixture(autouse=True)
def a_new_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugin_identity, "_first", {})


@pytest.fixture
def book(tmp_path: Path) -> Path:
    path = tmp_path / "book.txt"
    path.write_text("Once upon a time")
    return path


def section(**parameters: Any) -> WorldSection:
    return WorldSection(name=f"{__name__}:Library", parameters=parameters)


def test_a_world_is_known_by_name_version_parameters_and_all_that_it_reads(book: Path) -> None:
    assert world_ingredients(section(book=str(book), pages=2)) == {
        "name": f"{__name__}:Library",
        "version": "1",
        "parameters": {"pages": 2},
        "files": {"book": outside_file(book).content},
        "distributions": {"no-such-package": None, "numpy": importlib.metadata.version("numpy")},
        "state": {"doors": "3"},
    }


def test_another_place_is_the_same_world_and_another_content_is_another(book: Path, tmp_path: Path) -> None:
    copied = tmp_path / "copy.txt"
    copied.write_bytes(book.read_bytes())
    assert world_ingredients(section(book=str(copied))) == world_ingredients(section(book=str(book)))
    copied.write_text("Another story")
    plugin_identity._first.clear()
    assert world_ingredients(section(book=str(copied))) != world_ingredients(section(book=str(book)))


def test_of_nested_parameters_only_the_path_is_left_out(book: Path, tmp_path: Path) -> None:
    (tmp_path / "shelf").mkdir()
    (tmp_path / "shelf" / "a.txt").write_text("hello")
    found = world_ingredients(section(book=str(book), shelf={"folder": str(tmp_path / "shelf"), "order": "by name"}))
    assert found["parameters"] == {"shelf": {"order": "by name"}}
    assert set(found["files"]) == {"book", "shelf.folder"}


class Played(Section):
    """Parameters that hold a world."""

    world: WorldSection
    turns: int = 3


class Compared(Section):
    """Parameters that hold others at every depth."""

    plays: dict[str, Played]
    teachers: tuple[Outside | None, ...] = ()


def test_what_comes_from_outside_is_known_by_content_at_any_depth(book: Path) -> None:
    teacher, world = Outside(place="models/teacher", content="abc"), section(book=str(book))
    parameters = Compared(plays={"first": Played(world=world)}, teachers=(None, teacher))
    assert known_by_content(parameters) == {
        "plays": {"first": {"world": world_ingredients(world), "turns": 3}},
        "teachers": [None, "abc"],
    }
    assert list(from_outside(parameters)) == [("plays", "first", "world"), ("teachers", 1)]


def test_the_digest_of_a_world_follows_what_it_reads_and_its_state(book: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name, parameters = f"{__name__}:Library", {"book": str(book)}
    first = world_digest(name, parameters)
    assert world_digest(name, parameters) == first
    monkeypatch.setattr(Library, "doors", 4)
    # The class that the name leads to may be another one than ours, if the test's module was imported twice.
    monkeypatch.setattr(plugin_identity.world_class(name), "doors", 4)
    assert world_digest(name, parameters) != first


def test_a_file_that_is_missing_or_changes_while_a_process_plays_is_refused(book: Path, tmp_path: Path) -> None:
    missing = tmp_path / "missing.txt"
    with pytest.raises(ConfigurationError, match=rf"world\.parameters\.book.*{missing}.*TW-missing-file"):
        what_it_reads(Library, {"book": str(missing)})
    before = what_it_reads(Library, {"book": str(book)})
    book.write_text("Twice upon a time, then")
    with pytest.raises(ConfigurationError, match=r"world\.parameters\.book.*TW-changed-file"):
        what_it_reads(Library, {"book": str(book)})
    plugin_identity._first.clear()
    assert what_it_reads(Library, {"book": str(book)}) != before
