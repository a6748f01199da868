"""The local Prefect server: one per home, reused, quiet, gone when nobody needs it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from flows import server
from turnwise.errors import TurnwiseError

CLIENT = "from flows.server import ensure_server; print(ensure_server())"


def start_client(home: Path) -> subprocess.Popen[str]:
    environment = {name: value for name, value in os.environ.items() if name not in ("PREFECT_API_URL", "PREFECT_HOME")}
    return subprocess.Popen(
        [sys.executable, "-c", CLIENT],
        env={**environment, "TURNWISE_HOME": str(home)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_until(condition: Callable[[], bool]) -> None:
    for _ in range(1800):
        if condition():
            return
        time.sleep(0.1)
    raise AssertionError("waited three minutes for what did not happen")


def is_alive(process: int) -> bool:
    """Whether a process runs; one that has ended and waits for its parent to notice does not."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{process}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_two_processes_share_one_server_which_leaves_when_they_are_gone(tmp_path: Path) -> None:
    folder = tmp_path / "prefect"
    folder.mkdir()
    supervisors = [server._start_supervisor(folder, idle_seconds=5) for _ in range(2)]
    # A client that finds none starts one of its own, which waits longer for other clients than this test does.
    wait_until(lambda: server._supervised(folder))
    clients = [start_client(tmp_path) for _ in range(2)]
    answers = [client.communicate() for client in clients]
    assert [client.returncode for client in clients] == [0, 0]
    assert answers[0] == answers[1], "the same address"
    url, errors = answers[0]
    assert url.startswith("http://127.0.0.1:") and errors == ""
    assert (folder / "prefect.db").is_file()
    wait_until(lambda: not server._supervised(folder))
    assert [supervisor.wait() for supervisor in supervisors] == [0, 0]
    assert not server._answers(url.strip())
    assert not (folder / "server.json").exists()
    settings = server._server_settings(folder, 1)
    assert settings["PREFECT_SERVER_DATABASE_MIGRATE_ON_START"] == "false", "the database has been prepared"
    (folder / "migrated").write_text("3.0.0")
    assert "PREFECT_SERVER_DATABASE_MIGRATE_ON_START" not in server._server_settings(folder, 1)


def test_a_server_that_runs_is_found_at_once(prefect_server: str) -> None:
    client = start_client(Path(os.environ["PREFECT_HOME"]).parent)
    assert client.communicate() == (prefect_server + "\n", "")


def test_the_server_of_the_users_choice_is_taken_as_it_is(turnwise_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PREFECT_API_URL", "http://prefect.example:4200/api")
    monkeypatch.delitem(sys.modules, "prefect", raising=False)
    for name in ("NO_PROXY", "no_proxy", "PREFECT_LOGGING_LEVEL"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    assert server.ensure_server() == "http://prefect.example:4200/api"
    server.start_server()
    assert not turnwise_home.exists()
    assert os.environ["PREFECT_LOGGING_LEVEL"] == "WARNING"


def test_a_proxy_is_not_asked_for_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "example.org,localhost")
    monkeypatch.setenv("no_proxy", "")
    server._bypass_proxies()
    server._bypass_proxies()
    assert os.environ["NO_PROXY"] == os.environ["no_proxy"] == "example.org,localhost,127.0.0.1"


def test_a_server_that_does_not_start_is_reported_with_its_log(
    turnwise_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[Path] = []

    def fail(folder: Path) -> subprocess.Popen[bytes]:
        started.append(folder)
        return subprocess.Popen(["false"])

    monkeypatch.setattr(server, "_start_supervisor", fail)
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    with pytest.raises(TurnwiseError, match=r"server\.log.*PREFECT_API_URL"):
        server.ensure_server()
    assert len(started) == server.ATTEMPTS


def test_a_supervisor_that_is_killed_takes_its_server_with_it() -> None:
    script = (
        "import subprocess, time; from flows.server import _die_with_parent\n"
        "child = subprocess.Popen(['sleep', '600'], preexec_fn=_die_with_parent)\n"
        "print(child.pid, flush=True); time.sleep(600)\n"
    )
    supervisor = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE)
    assert supervisor.stdout is not None
    child = int(supervisor.stdout.readline())
    assert is_alive(child)
    supervisor.send_signal(signal.SIGKILL)
    supervisor.wait()
    supervisor.stdout.close()
    wait_until(lambda: not is_alive(child))


def test_nothing_of_prefect_is_imported() -> None:
    script = "import sys, flows.server; print([name for name in sys.modules if name.startswith('prefect')])"
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, check=True).stdout == b"[]\n"
