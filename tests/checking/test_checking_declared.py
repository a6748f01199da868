"""The checker finds what a world reads and does not say."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from corridor_worlds import Corridor

from turnwise.checking.examination import reads_are_declared
from turnwise.checking.report import Broken
from turnwise.checking.subject import Subject
from turnwise.store import plugin_identity
from turnwise.world import World


def found(world: World, **parameters: Any) -> str:
    plugin_identity._first.clear()
    return reads_are_declared(Subject(world, parameters, 2, 0, 1))


class Bookish(Corridor):
    @classmethod
    def files(cls, parameters: Mapping[str, Any]) -> Mapping[str, Path | None]:
        return {"book": Path(parameters["book"])}

    @classmethod
    def distributions(cls, parameters: Mapping[str, Any]) -> tuple[str, ...]:
        return ("pytest",)  # which its module imports


class Boastful(Corridor):
    @classmethod
    def distributions(cls, parameters: Mapping[str, Any]) -> tuple[str, ...]:
        return ("no-such-package",)


class Unreachable(Corridor):
    @classmethod
    def state(cls, parameters: Mapping[str, Any]) -> Mapping[str, str]:
        raise ValueError("url must be the address of a running server")


def test_a_world_that_reads_nothing_has_nothing_to_say() -> None:
    assert found(Corridor()) == "0 files, 0 packages, 0 programs or servers"


def test_files_must_be_there(tmp_path: Path) -> None:
    (tmp_path / "book").touch()
    assert found(Bookish(), book=str(tmp_path / "book")).startswith("1 files")
    with pytest.raises(Broken, match=r"world\.parameters\.book must name a file or folder"):
        found(Bookish(), book=str(tmp_path / "lost"))


def test_distributions_must_be_installed() -> None:
    with pytest.raises(Broken, match="installed packages, as pip calls them; found 'no-such-package'"):
        found(Boastful())


def test_versions_must_be_there_to_be_asked_for() -> None:
    with pytest.raises(Broken, match="all that a world reads must be found; url must be"):
        found(Unreachable())


def test_what_the_code_imports_must_be_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a_world_that_imports.py").write_text(
        "from corridor_worlds import Corridor\nimport helper_of_the_world\n\nclass Importing(Corridor):\n    pass\n"
    )
    (tmp_path / "helper_of_the_world.py").write_text("def play():\n    import minecraft_data, json, httpx\n")
    monkeypatch.syspath_prepend(tmp_path)
    importing = importlib.import_module("a_world_that_imports").Importing
    with pytest.raises(Broken, match=r"imports minecraft_data, so `distributions` must name 'minecraft.data'"):
        found(importing())
    monkeypatch.setattr(importing, "distributions", classmethod(lambda cls, parameters: ("Minecraft-Data",)))
    assert found(importing()) == "0 files, 1 packages, 0 programs or servers"
