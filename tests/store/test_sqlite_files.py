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
from tests.own_view import let_see
from turnwise.store import sqlite_files
from turnwise.store.sqlite_files import copy_prepared, keep_prepared, sqlite_address, sqlite_file
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


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    let_see(monkeypatch, sqlite_files, "sys", prefix=str(tmp_path / "environment"))
    return tmp_path / "environment"


def make(path: Path, *names: str) -> Path:
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("CREATE TABLE IF NOT EXISTS names (name TEXT)")
        database.executemany("INSERT INTO names VALUES (?)", [(name,) for name in names])
    return path


def names_in(path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as database:
        return [name for (name,) in database.execute("SELECT name FROM names")]


def test_a_copy_holds_what_was_kept_and_changes_neither_the_kept_nor_other_copies(
    environment: Path, tmp_path: Path
) -> None:
    assert not copy_prepared("lib-1", tmp_path / "first.db") and not (tmp_path / "first.db").exists()
    keep_prepared("lib-1", make(tmp_path / "made.db", "a"))
    assert copy_prepared("lib-1", tmp_path / "first.db")
    make(tmp_path / "first.db", "b")
    assert copy_prepared("lib-1", tmp_path / "second.db")
    assert (names_in(tmp_path / "first.db"), names_in(tmp_path / "second.db")) == (["a", "b"], ["a"])
    assert not copy_prepared("lib-2", tmp_path / "third.db"), "another version has other tables"


def test_what_is_kept_stays_and_a_database_that_others_have_open_is_kept_whole(
    environment: Path, tmp_path: Path
) -> None:
    made = make(tmp_path / "made.db", "a")
    with closing(sqlite3.connect(made)) as writer:
        writer.execute("INSERT INTO names VALUES ('committed')")
        writer.commit()
        writer.execute("INSERT INTO names VALUES ('not yet')")
        keep_prepared("lib-1", made)
    keep_prepared("lib-1", make(tmp_path / "other.db", "z"))
    copy_prepared("lib-1", tmp_path / "copy.db")
    assert names_in(tmp_path / "copy.db") == ["a", "committed"]


def test_where_the_environment_cannot_be_written_to_nothing_is_kept(environment: Path, tmp_path: Path) -> None:
    environment.write_text("no folder")
    keep_prepared("lib-1", make(tmp_path / "made.db", "a"))
    assert not copy_prepared("lib-1", tmp_path / "copy.db")
