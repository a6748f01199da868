"""What a killed process left RUNNING in MLflow ends as KILLED when the next command of its home begins, and no more."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from flows.commands import records
from flows.commands.cli import status_of
from flows.runtime import flow_runs
from tests.own_view import let_see
from turnwise.experiment import load
from turnwise.records.record import recording_store
from turnwise.store.sqlite_files import sqlite_address, sqlite_file
from turnwise.tracking import Recorder
from turnwise.tracking.database import prepare_database
from turnwise.tracking.ownership import close_abandoned

ROOT = Path(__file__).parents[2]
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL)
RECORD = """
import os, signal, sys, time
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # ignored under nohup
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in the background of a shell
from pathlib import Path
from turnwise.own_process import collect_rarely
collect_rarely()
from turnwise.tracking import Recorder
from turnwise.tracking.library import mlflow
mlflow()
uri, home, *names = sys.argv[1:]
os.environ["TURNWISE_HOME"] = home
for name in names:
    if os.fork() == 0:  # each a process of its own, MLflow imported once
        recorder = Recorder(uri, "turnwise", Path(home) / "mlflow")
        parent = recorder.parent(name, name, {})
        recorder.child(parent, f"{name} seed 1", f"{name} child", {}).log_iteration(0, {"train/success": 0.5})
        print(name, os.getpid(), flush=True)
        time.sleep(600)
sys.stdin.read()
"""


@contextlib.contextmanager
def recording(uri: str, home: Path, names: Sequence[str]) -> Iterator[dict[str, int]]:
    """Processes that record a parent and a child run of each name, and live: by name, their ids."""
    command = [sys.executable, "-c", RECORD, uri, str(home), *names]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stdin is not None and process.stdout is not None
    try:
        told = [process.stdout.readline().rsplit(maxsplit=1) for _ in names]
        yield {name: int(process_id) for name, process_id in told}
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        process.stdin.close()
        process.stdout.close()


def kill(process_id: int, number: int = signal.SIGKILL) -> None:
    """End a process, and wait until the kernel has let go of what it held."""
    os.kill(process_id, number)
    stat = Path(f"/proc/{process_id}/stat")
    while stat.exists() and stat.read_text().rpartition(")")[2].split()[0] not in "ZX":
        time.sleep(0.01)


def statuses(uri: str) -> dict[str, str]:
    """By name, the status of every run."""
    return {name: status for name, status, *_ in rows(uri)}


def rows(uri: str) -> list[tuple[str, str, int, int | None]]:
    path = sqlite_file(uri)
    assert path is not None
    with closing(sqlite3.connect(path)) as database:
        return database.execute("SELECT name, status, start_time, end_time FROM runs").fetchall()


def of(*names: str, status: str) -> dict[str, str]:
    return {run: status for name in names for run in (name, f"{name} seed 1")}


@pytest.fixture
def home(tmp_path: Path, migrated_database: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home with an empty database, in which the commands of this process are given."""
    folder = tmp_path / "project" / ".turnwise"
    (folder / "store").mkdir(parents=True)
    prepare_database(sqlite_address(folder / "mlflow.db"))
    monkeypatch.setenv("TURNWISE_HOME", str(folder))
    return folder


def record(uri: str, home: Path, name: str = "killed") -> Recorder:
    """Record a parent and a child run of this name in this process."""
    recorder = Recorder(uri, "turnwise", home / "mlflow")
    recorder.child(recorder.parent(name, name, {}), f"{name} seed 1", f"{name} child", {})
    return recorder


def copied(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of a home, in which nobody lives, as the home of the next commands."""
    copy = home.parent.parent / "copy" / ".turnwise"
    shutil.copytree(home, copy)
    monkeypatch.setenv("TURNWISE_HOME", str(copy))
    return copy


def test_whatever_ends_a_process_its_runs_end_as_killed_when_it_last_wrote_and_no_other_does(home: Path) -> None:
    uri = sqlite_address(home / "mlflow.db")
    killed = [number.name for number in SIGNALS]
    with recording(uri, home, [*killed, "alive"]) as processes:
        assert close_abandoned(uri) == 0
        assert statuses(uri) == of(*processes, status="RUNNING")
        for number in SIGNALS:
            kill(processes[number.name], number)
        now = int(time.time() * 1000)
        assert close_abandoned(uri) == 2 * len(SIGNALS)
        assert statuses(uri) == of(*killed, status="KILLED") | of("alive", status="RUNNING")
        ends = {name: (start, end) for name, _, start, end in rows(uri)}
        for name in of(*killed, status="KILLED"):
            start, end = ends[name]
            assert end is not None and start <= end <= now
        assert {ends[name][1] for name in of("alive", status="RUNNING")} == {None}
        assert close_abandoned(uri) == 0


def test_a_killed_run_that_is_opened_again_is_running_and_ends_finished(home: Path) -> None:
    uri = sqlite_address(home / "mlflow.db")
    with recording(uri, home, ["killed"]) as processes:
        kill(processes["killed"])
    assert close_abandoned(uri) == 2
    recorder = Recorder(uri, "turnwise", home / "mlflow")
    parent = recorder.parent("killed", "killed", {})
    child = recorder.child(parent, "killed seed 1", "killed child", {})
    assert statuses(uri) == of("killed", status="RUNNING")
    assert close_abandoned(uri) == 0
    child.finish("result")
    parent.finish("results")
    assert statuses(uri) == of("killed", status="FINISHED")


def test_runs_of_another_home_in_one_database_are_its_own_affair(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shared, other = sqlite_address(home.parent.parent / "shared.db"), home.parent.parent / "other"
    prepare_database(shared)
    with recording(shared, other, ["of the other"]) as processes:
        kill(processes["of the other"])
    assert close_abandoned(shared) == 0
    assert statuses(shared) == of("of the other", status="RUNNING")
    monkeypatch.setenv("TURNWISE_HOME", str(other))
    assert close_abandoned(shared) == 2
    assert statuses(shared) == of("of the other", status="KILLED")


def test_a_copy_of_a_home_does_not_end_what_the_home_records_elsewhere(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = sqlite_address(home.parent.parent / "shared.db")
    prepare_database(shared)
    record(shared, home)
    copied(home, monkeypatch)
    assert close_abandoned(shared) == 0
    assert statuses(shared) == of("killed", status="RUNNING")


def test_what_a_copied_home_was_recording_has_ended_there(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record(sqlite_address(home / "mlflow.db"), home)
    copy = copied(home, monkeypatch)
    assert close_abandoned(sqlite_address(copy / "mlflow.db")) == 2
    assert statuses(sqlite_address(copy / "mlflow.db")) == of("killed", status="KILLED")
    assert statuses(sqlite_address(home / "mlflow.db")) == of("killed", status="RUNNING")


def test_a_run_that_two_processes_have_open_goes_on_with_the_one_that_lives(home: Path) -> None:
    uri = sqlite_address(home / "mlflow.db")
    recorder = record(uri, home, "both")
    child = recorder.child(recorder.parent("both", "both", {}), "both seed 1", "both child", {})
    with recording(uri, home, ["both"]) as processes:
        kill(processes["both"])
    assert close_abandoned(uri) == 2
    child.log_iteration(1, {"train/success": 0.75})
    assert statuses(uri) == {"both": "KILLED", "both seed 1": "RUNNING"}
    assert close_abandoned(uri) == 0


@pytest.mark.parametrize(
    "command", [("show",), ("compare",), ("lineage", "success"), ("ui",), ("export", "x", "--to", "y")]
)
def test_every_command_on_recorded_runs_closes_them(
    command: tuple[str, ...], home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    record(sqlite_address(home / "mlflow.db"), home)
    copy = copied(home, monkeypatch)
    monkeypatch.chdir(ROOT)
    let_see(monkeypatch, records, "os", execvp=lambda *_: None)
    status_of(command)
    assert statuses(sqlite_address(copy / "mlflow.db")) == of("killed", status="KILLED"), capsys.readouterr()


@pytest.mark.parametrize("begin", ["ablation", "evaluate"])
def test_whatever_runs_closes_them_before_it_computes(begin: str, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record(sqlite_address(home / "mlflow.db"), home)
    copy = copied(home, monkeypatch)
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(flow_runs, "ready_for_prefect", lambda console: None)
    monkeypatch.setattr(flow_runs, "require_machine_and_model", lambda experiment, processes: None)
    experiment = load(ROOT / "params.yaml")
    if begin == "ablation":
        recording_store(experiment)
    else:
        flow_runs.ready_to_run(experiment, None)  # type: ignore[arg-type]
    assert statuses(sqlite_address(copy / "mlflow.db")) == of("killed", status="KILLED")
