"""The project's root and the home are found from anywhere in the project."""

from __future__ import annotations

from pathlib import Path

import pytest

from turnwise.errors import ConfigurationError
from turnwise.project import home, one_project, project_root


def test_the_home_is_found_from_anywhere_in_the_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TURNWISE_HOME", "DVC_ROOT"):
        monkeypatch.delenv(name, raising=False)
    inner = tmp_path / "project" / "notebooks"
    inner.mkdir(parents=True)
    monkeypatch.chdir(inner)
    with pytest.raises(ConfigurationError, match="TW-no-project"):
        project_root()
    (tmp_path / "project" / "params.yaml").touch()
    assert home() == tmp_path / "project" / ".turnwise"
    monkeypatch.setenv("DVC_ROOT", str(tmp_path))  # `dvc exp run --temp` works in a copy, and names the project here
    assert home() == tmp_path / ".turnwise"


def test_a_home_that_is_named_is_taken_as_it_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TURNWISE_HOME", "elsewhere/../home")
    assert home() == tmp_path / "home"
    monkeypatch.setenv("TURNWISE_HOME", "")
    monkeypatch.setenv("DVC_ROOT", str(tmp_path / "project"))
    assert home() == tmp_path / "project" / ".turnwise"


def test_the_nearest_project_above_is_the_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DVC_ROOT", raising=False)
    inner = tmp_path / "outer" / "inner"
    (inner / "notebooks").mkdir(parents=True)
    for folder in (tmp_path / "outer", inner):
        (folder / "params.yaml").touch()
    monkeypatch.chdir(inner / "notebooks")
    assert project_root() == inner
    (inner / "params.yaml").unlink()
    (inner / "params.yaml").mkdir()  # a folder of that name describes no experiment
    assert project_root() == tmp_path / "outer"


def test_the_project_is_found_once_where_something_changes_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("TURNWISE_HOME", "DVC_ROOT"):
        monkeypatch.delenv(name, raising=False)
    for project in ("one", "other"):
        (tmp_path / project).mkdir()
        (tmp_path / project / "params.yaml").touch()
    monkeypatch.chdir(tmp_path / "one")
    with one_project():
        monkeypatch.chdir(tmp_path / "other")
        with one_project():
            assert home() == project_root() / ".turnwise" == tmp_path / "one" / ".turnwise"
        monkeypatch.setenv("TURNWISE_HOME", "home")
        assert home() == tmp_path / "one" / "home"
        monkeypatch.setenv("DVC_ROOT", "..")
        assert project_root() == tmp_path
    monkeypatch.delenv("DVC_ROOT")
    assert project_root() == tmp_path / "other" and home() == tmp_path / "other" / "home"
