"""Databases that are made once and copied: what a copy holds, and what becomes of it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.own_view import let_see
from turnwise.store import prepared_databases
from turnwise.store.prepared_databases import copy_prepared, keep_prepared


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    let_see(monkeypatch, prepared_databases, "sys", prefix=str(tmp_path / "environment"))
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
