"""A store that several processes open and write at once."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tracking_samples import open_child, traces, trajectory

from tests.own_view import let_see
from turnwise.errors import ConfigurationError
from turnwise.tracking import Recorder, database
from turnwise.tracking.database import (
    alone,
    has_own_artifacts,
    place_of,
    prepare_database,
    require_store,
    sqlite_file,
)

FOUR_AT_ONCE = """
import os, sys, traceback
from pathlib import Path
from turnwise.own_process import collect_rarely, leave
collect_rarely()
from tests.own_view import let_see
from turnwise.tracking import Recorder, database
from turnwise.tracking.library import mlflow
mlflow()
uri, artifacts = sys.argv[1:]
ready, start = os.pipe()
children = []
for number in range(4):
    if not (child := os.fork()):
        os.close(start)
        os.read(ready, 1)
        try:
            parent = Recorder(uri, "turnwise", Path(artifacts)).parent("rules", "parent-1", {"seed": 1})
            run = Recorder(uri, "turnwise").child(parent, f"of {number % 2}", f"child-{number % 2}", {"seed": 1})
            run.log_iteration(0, {"success": 0.5})
            run.finish("result")
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    children.append(child)
os.close(start)  # they all begin now
leave(any(os.waitpid(child, 0)[1] for child in children))
"""


def test_processes_that_open_a_new_store_at_once_all_record_in_it(tmp_path: Path) -> None:
    path = tmp_path / "new" / "mlflow.db"
    path.parent.mkdir()
    (path.parent / ".mlflow.db.partial").write_text("what a killed process left behind")
    command = [sys.executable, "-c", FOUR_AT_ONCE, f"sqlite:///{path}", str(tmp_path / "artifacts")]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")
    assert {file.name for file in path.parent.iterdir()} == {"mlflow.db", "mlflow.db.lock"}
    database = sqlite3.connect(path)
    active = "from runs where lifecycle_stage = 'active'"
    assert database.execute(f"select status {active}").fetchall() == [("RUNNING",), *[("FINISHED",)] * 2]
    assert database.execute("select count(*) from metrics").fetchall() == [(2,)], "each number once"
    assert database.execute("pragma integrity_check").fetchall() == [("ok",)]
    database.close()


def test_what_opens_a_database_for_others_makes_none_that_is_there(tmp_path: Path, migrated_database: Path) -> None:
    before = migrated_database.stat()
    prepare_database(f"sqlite:///{migrated_database}")
    after = migrated_database.stat()
    assert (before.st_mtime_ns, before.st_ino) == (after.st_mtime_ns, after.st_ino)


@pytest.mark.parametrize(
    ("uri", "path"),
    [
        ("sqlite:////home/me/mlflow.db", Path("/home/me/mlflow.db")),
        ("sqlite+pysqlite:///mlflow.db?timeout=5", Path("mlflow.db")),
        ("sqlite:///:memory:", None),
        ("sqlite://", None),
        ("postgresql://me@machine/mlflow", None),
        ("http://127.0.0.1:5000", None),
    ],
)
def test_only_a_database_in_a_file_is_made_here(uri: str, path: Path | None) -> None:
    assert sqlite_file(uri) == path


def test_the_lock_of_a_process_that_was_killed_is_free(tmp_path: Path) -> None:
    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    killed = (
        "import os, signal, sys; from turnwise.tracking.database import alone\n"
        "with alone(sys.argv[1]): os.kill(os.getpid(), signal.SIGKILL)"
    )
    assert subprocess.run([sys.executable, "-c", killed, uri], check=False).returncode == -9
    with alone(uri):
        assert (tmp_path / "mlflow.db.lock").is_file()


def test_a_folder_that_cannot_be_written_to_is_read_without_a_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    let_see(monkeypatch, database, "os", access=lambda *_: False)  # tests may run as a user to whom no folder is closed
    with alone(f"sqlite:///{tmp_path / 'mlflow.db'}"):
        assert list(tmp_path.iterdir()) == []


def test_two_processes_that_record_the_same_run_record_each_number_and_episode_once(
    open_recorder: Callable[[], Recorder],
) -> None:
    recorder, rival = open_recorder(), open_recorder()
    one, other = open_child(recorder), open_child(rival)
    for iteration in range(3):
        one.log_iteration(iteration, {"success": iteration / 4, "seconds/update": 1.0})
        other.log_iteration(iteration, {"success": iteration / 4, "seconds/update": 2.0})
        other.log_trajectories(f"batch/{iteration}", [trajectory()])
        one.log_trajectories(f"batch/{iteration}", [trajectory()])
    for name in ("success", "seconds/update"):
        assert [metric.step for metric in recorder._client.get_metric_history(one.id, name)] == [0, 1, 2]
    assert len(traces(recorder, one)) == 3


def test_a_process_that_falls_behind_changes_nothing_of_a_run_that_another_has_finished(
    open_recorder: Callable[[], Recorder], caplog: pytest.LogCaptureFixture
) -> None:
    recorder, rival = open_recorder(), open_recorder()
    one, other, third = open_child(recorder), open_child(rival), open_child(open_recorder())
    one.log_iteration(0, {"success": 0.5})
    one.finish("result")
    other.log_iteration(0, {"success": 0.5})
    assert other.finished, "it is told by the next number that it records"
    other.fail("interrupted")
    third.fail("interrupted")
    found = recorder._client.get_run(one.id)
    assert (found.info.status, "turnwise.failure" in found.data.tags) == ("FINISHED", False)
    third.finish("result")
    assert found.info.end_time == recorder._client.get_run(one.id).info.end_time
    assert not caplog.records


@pytest.mark.parametrize("umask", [0o002, 0o022])
def test_the_databases_mode_is_as_the_umask_says(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        prepare_database(f"sqlite:///{tmp_path / 'mlflow.db'}")
    finally:
        os.umask(before)
    modes = {path.name: oct(path.stat().st_mode & 0o777) for path in tmp_path.iterdir()}
    assert modes == dict.fromkeys(("mlflow.db", "mlflow.db.lock"), oct(0o666 & ~umask))


def test_a_database_leaves_it_to_us_where_artifacts_go_and_a_server_does_not() -> None:
    assert not has_own_artifacts("postgresql+psycopg://turnwise@db.lab/mlflow")
    assert not has_own_artifacts("sqlite:////tmp/mlflow.db")
    assert has_own_artifacts("http://mlflow.lab:5000")


def test_an_address_is_told_without_its_password() -> None:
    assert place_of("postgresql+psycopg://turnwise:secret@db.lab:5432/mlflow") == "db.lab:5432"
    assert place_of("sqlite:////tmp/mlflow.db") == "/tmp/mlflow.db"
    assert place_of("databricks") == "databricks"


def test_a_store_that_cannot_be_opened_is_refused_without_its_password() -> None:
    with pytest.raises(ConfigurationError, match="TW-tracking-unusable") as refused:
        require_store("unknown://turnwise:secret@db.lab/mlflow")
    assert "db.lab" in str(refused.value) and "secret" not in str(refused.value)
