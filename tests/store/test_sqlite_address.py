"""A SQLite file has an address by which SQLAlchemy, and so MLflow and Prefect, open that file and no other."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import create_engine, text

from flows.runtime.server import process_settings
from turnwise.store.sqlite_address import sqlite_address, sqlite_file
from turnwise.tracking import Recorder

NAMES = ("what?x=1", "a#b", "50%", "a%20b", "with space", 'it\'s "q"', "größe", "a&b;c", "$HOME", "a:b", "back\\slash")


@pytest.mark.parametrize("name", NAMES)
def test_sqlalchemy_opens_the_file_that_is_meant(name: str, tmp_path: Path) -> None:
    path = tmp_path / name / "x.db"
    path.parent.mkdir()
    engine = create_engine(sqlite_address(path))
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE found (x)"))
    engine.dispose()
    with closing(sqlite3.connect(path)) as database:
        assert database.execute("SELECT name FROM sqlite_master").fetchall() == [("found",)]
    assert [each.name for each in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("name", NAMES)
def test_mlflow_records_inside_of_the_folder_that_is_meant(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    home = tmp_path / name
    home.mkdir()
    monkeypatch.setenv("TURNWISE_HOME", str(home))
    run = Recorder(sqlite_address(home / "mlflow.db"), "turnwise", home / "mlflow").parent("a", "b", {})
    run.log_text("text", "note.txt")
    assert [path.read_text() for path in home.rglob("note.txt")] == ["text"]
    assert {path.name for path in tmp_path.iterdir()} == {name, "elsewhere"}
    assert not list((tmp_path / "elsewhere").iterdir())


@given(name=st.text(min_size=1, max_size=30).filter(lambda name: "\0" not in name and "/" not in name))
def test_an_address_names_its_file(name: str) -> None:
    try:
        name.encode()
    except UnicodeEncodeError:
        return
    path = Path("/home/me") / name / "mlflow.db"
    assert sqlite_file(sqlite_address(path)) == path


@pytest.mark.parametrize(
    ("address", "path"),
    [
        ("sqlite:////home/me/mlflow.db", "/home/me/mlflow.db"),
        ("sqlite:///file:///what%3F/mlflow.db?uri=true", "/what?/mlflow.db"),
        ("sqlite:///file:mlflow.db?uri=true&timeout=5", "mlflow.db"),
        ("sqlite:///file:mlflow.db", "file:mlflow.db"),
        ("sqlite:///file:x?mode=memory&uri=true", None),
        ("sqlite:///:memory:", None),
        ("postgresql:///mlflow", None),
    ],
)
def test_a_file_is_found_in_every_form_of_address(address: str, path: str | None) -> None:
    assert sqlite_file(address) == (None if path is None else Path(path))


def test_prefects_server_is_given_such_an_address() -> None:
    url = process_settings(Path("/what?x=1/prefect"), 4200)["PREFECT_SERVER_DATABASE_CONNECTION_URL"]
    assert url == "sqlite+aiosqlite:///file:/what%3Fx%3D1/prefect/prefect.db?uri=true"
