"""The files that MLflow keeps for a home follow the home, and nothing is written where it lay."""

from __future__ import annotations

import gc
import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import mlflow
import pytest
from mlflow.tracking._tracking_service import utils
from tracking_samples import TASK_SET, open_child, traces, trajectory

from turnwise.store import Reference
from turnwise.store.sqlite_files import sqlite_address
from turnwise.tracking import Recorder
from turnwise.tracking.client import TrackingClient
from turnwise.tracking.database import follow_move, prepare_database
from turnwise.tracking.finding import read_text

NAMES = ("copy", "with space", "what?x=1", "50% größe#a")


def address(home: Path) -> str:
    return sqlite_address(home / "mlflow.db")


def recorder_of(home: Path) -> Recorder:
    return Recorder(address(home), "turnwise", home / "mlflow")


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """A home with a run that has a file, a trace, a model and a data set."""
    folder = tmp_path / "project" / ".turnwise"
    (folder / "store").mkdir(parents=True)
    child = open_child(recorder_of(folder))
    child.log_text("first", "note.txt")
    child.log_trajectories("test", [trajectory()])
    child.log_policy(Reference(kind="policy", digest="0123456789abcdef" * 2), 1, {}, TASK_SET)
    utils._artifact_repos_cache.clear()  # by run; the copy is opened by another process
    yield folder
    utils._artifact_repos_cache.clear()  # each has threads, which end with it
    gc.collect()


def files(folder: Path) -> dict[Path, tuple[bytes, int]]:
    """The content and the time of every file below a folder."""
    return {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in folder.rglob("*") if path.is_file()}


def mentions(home: Path, folder: Path) -> list[str]:
    """The tables of a home's database in which a folder is named, as a path or as a URI."""
    found = []
    with closing(sqlite3.connect(home / "mlflow.db")) as database:
        for (table,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            rows = database.execute(f'SELECT * FROM "{table}"').fetchall()
            if any(f"{name}/" in str(value) for row in rows for value in row for name in (folder, folder.as_uri())):
                found.append(table)
    return found


@pytest.mark.parametrize("name", NAMES)
def test_a_copy_keeps_to_itself(home: Path, name: str) -> None:
    copy = home.parent.parent / name / ".turnwise"
    shutil.copytree(home, copy)
    before = files(home)
    run_id = TrackingClient(address(home)).runs()[-1].info.run_id
    assert read_text(address(copy), run_id, "note.txt") == "first"

    recorder = recorder_of(copy)
    child = open_child(recorder)
    assert child.id == run_id
    child.log_text("second", "note.txt")
    child.log_text("third", "other.txt")
    other = open_child(recorder, "child-2")
    other.log_text("fourth", "note.txt")
    assert sorted(path.read_text() for path in (copy / "mlflow").rglob("*.txt")) == ["fourth", "second", "third"]
    assert files(home) == before
    assert mentions(copy, home) == []
    client = mlflow.MlflowClient(address(copy))
    assert Path(client.download_artifacts(run_id, "note.txt")).read_text() == "second"
    assert [each.info.tags["turnwise.label"] for each in traces(recorder, child)] == ["test"]


def test_a_moved_home_makes_nothing_where_it_lay(home: Path) -> None:
    moved = home.parent.parent / "moved" / ".turnwise"
    shutil.move(home.parent, moved.parent)
    open_child(recorder_of(moved)).log_text("second", "note.txt")
    assert not home.parent.exists()
    assert [path.read_text() for path in (moved / "mlflow").rglob("*.txt")] == ["second"]


def test_mlflows_own_pages_are_those_of_the_moved_home(home: Path) -> None:
    moved = home.parent.parent / "moved" / ".turnwise"
    shutil.move(home.parent, moved.parent)
    prepare_database(address(moved))  # as `turnwise ui` does
    assert mentions(moved, home) == []


@pytest.mark.skipif(os.getuid() == 0, reason="root may write everywhere")
def test_a_copy_that_can_only_be_read_is_read(home: Path) -> None:
    copy = home.parent.parent / "copy" / ".turnwise"
    shutil.copytree(home, copy)
    run_id = TrackingClient(address(home)).runs()[-1].info.run_id
    shutil.rmtree(home)
    copy.chmod(0o555)
    assert read_text(address(copy), run_id, "note.txt") == "first"


def test_the_same_home_by_another_name_has_not_moved(home: Path) -> None:
    link = home.parent.parent / "link"
    link.symlink_to(home.parent)
    before = files(home)
    follow_move(address(link / ".turnwise"))
    assert files(home) == before


def test_a_database_that_is_no_homes_is_left_as_it_is(home: Path) -> None:
    elsewhere = home.parent.parent / "elsewhere" / "mlflow.db"
    elsewhere.parent.mkdir()
    shutil.copy(home / "mlflow.db", elsewhere)
    before = elsewhere.read_bytes()
    follow_move(sqlite_address(elsewhere))
    assert elsewhere.read_bytes() == before
