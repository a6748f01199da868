"""Prefect's list of runs: what killed processes left running is closed, old runs are removed, all others stay."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PREAMBLE = """
import json, os, signal, sys, time
from turnwise.own_process import collect_rarely, leave
collect_rarely()
from flows.runtime.server import ensure_server
ensure_server()
from prefect import flow, task
from prefect.client.orchestration import get_client
from prefect.states import Completed
from flows.runtime.housekeeping import close_abandoned_runs, mark_flow_runs
"""
RUN = """
mark_flow_runs()
if "fork" in sys.argv and os.fork() == 0:
    time.sleep(600)
@task
def wait():
    close_abandoned_runs()  # as every command does after it has marked its own runs
    print("running", flush=True)
    sys.stdin.read()
@flow(name="waits", flow_run_name=sys.argv[1])
def waits():
    wait()
waits()
"""
UNMARKED = RUN.replace("mark_flow_runs()", "")
KILL_AND_CLOSE = """
killed = json.loads(sys.argv[1])
def states(expected):
    while True:
        with get_client(sync_client=True) as client:
            runs = {run.name: run.state_name for run in client.read_flow_runs()}
            tasks = sorted(task_run.state_name for task_run in client.read_task_runs())
        if tasks == expected:
            return [runs, tasks]
        time.sleep(0.2)
before = states(["Running"] * 4)
for process in killed:
    os.kill(process, signal.SIGKILL)
print(sys.stdin.readline(), end="")
closed = close_abandoned_runs()
print(json.dumps([before, closed, states(["Crashed"] * 2 + ["Running"] * 2), close_abandoned_runs()]))
leave(0)
"""
OLD_AND_NEW = """
import sqlite3
@flow
def nothing(): pass
def names():
    return {run.name for run in client.read_flow_runs()}
with get_client(sync_client=True) as client:
    for name in ("old", "new"):
        client.create_flow_run(nothing, name=name, state=Completed())
    with sqlite3.connect(sys.argv[1], timeout=60) as database:
        database.execute("update flow_run set end_time = datetime(end_time, '-31 days') where name = 'old'")
    while "old" in names():
        time.sleep(0.2)
    print(sorted({"old", "new"} & names()))
leave(0)
"""


@pytest.fixture(scope="module")
def server_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A home that a group shares, with a server of its own, which looks for old runs every second."""
    from flows.runtime import server

    home = tmp_path_factory.mktemp("housekeeping")
    environment = pytest.MonkeyPatch()
    for name in ("PREFECT_API_URL", "PREFECT_HOME"):
        environment.delenv(name, raising=False)
    environment.setenv("TURNWISE_HOME", str(home))
    environment.setenv("PREFECT_SERVER_SERVICES_DB_VACUUM_LOOP_SECONDS", "1")
    umask = os.umask(0o002)
    yield home
    os.umask(umask)
    server.stop_server()
    environment.undo()


def start(script: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", PREAMBLE + script, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def test_what_a_killed_process_left_running_is_closed_and_nothing_else_is(server_home: Path) -> None:
    named = {"killed": RUN, "killed, its fork lives": RUN, "alive": RUN, "not ours": UNMARKED}
    processes = {name: start(script, name, *["fork"] * ("fork" in name)) for name, script in named.items()}
    killed = [process for name, process in processes.items() if "killed" in name]
    try:
        for process in processes.values():
            assert process.stdout is not None and process.stdout.readline() == "running\n"
        tidying = start(KILL_AND_CLOSE, json.dumps([process.pid for process in killed]))
        for process in killed:
            process.wait()
        answer, _ = tidying.communicate("they are gone\n")
        gone, told = answer.splitlines()
        (runs_before, tasks_before), closed, (runs_after, tasks_after), again = json.loads(told)
        running = dict.fromkeys(named, "Running")
        assert gone == "they are gone" and tasks_before == ["Running"] * 4
        assert {name: runs_before[name] for name in named} == running
        assert (closed, again) == (2, 0)
        crashed = {name: "Crashed" for name in named if "killed" in name}
        assert {name: runs_after[name] for name in named} == running | crashed
        assert tasks_after == ["Crashed", "Crashed", "Running", "Running"]
        assert len(list((server_home / "processes" / "prefect").iterdir())) == 1, "of the one that lives"
    finally:
        for process in processes.values():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def test_old_runs_are_removed_by_the_server_whose_files_follow_the_umask(server_home: Path) -> None:
    answer, _ = start(OLD_AND_NEW, str(server_home / "prefect" / "prefect.db")).communicate()
    assert answer == "['new']\n"
    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in (server_home / "prefect").rglob("*")}
    assert server_home / "prefect" / "prefect.db" in modes
    wrong = {path: oct(mode) for path, mode in modes.items() if mode != (0o775 if path.is_dir() else 0o664)}
    assert wrong == {}, "a server's files follow the umask"
