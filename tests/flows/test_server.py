"""The local Prefect server: one per home, reused, quiet, gone when nobody needs it."""

from __future__ import annotations

import contextlib
import http.client
import http.server
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect
from websockets.typing import Origin, Subprotocol

from flows.runtime import server
from flows.runtime.server import SECONDS_THAT_RUNS_STAY, keep_finished_runs
from turnwise.errors import ConfigurationError, TurnwiseError

CLIENT = "from flows.runtime.server import ensure_server; print(ensure_server())"


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
    while not condition():
        time.sleep(0.1)


def test_two_processes_share_one_server_which_leaves_when_they_are_gone(tmp_path: Path) -> None:
    folder = tmp_path / "prefect"
    folder.mkdir()
    servers = [server._start_server(folder, idle_seconds=30) for _ in range(2)]
    # A client that finds none starts one of its own, which waits longer for other clients than this test does.
    wait_until(lambda: server._is_locked(folder))
    clients = [start_client(tmp_path) for _ in range(2)]
    answers = [client.communicate() for client in clients]
    assert [client.returncode for client in clients] == [0, 0]
    assert answers[0] == answers[1], "the same address"
    url, errors = answers[0]
    assert url.startswith("http://127.0.0.1:") and errors == ""
    assert (folder / "prefect.db").is_file()
    wait_until(lambda: not server._is_locked(folder))
    assert [each.wait() for each in servers] == [0, 0]
    assert not server._answers(url.strip())
    assert not (folder / "server.json").exists()
    settings = server.process_settings(folder, 1)
    assert settings["PREFECT_SERVER_DATABASE_MIGRATE_ON_START"] == "false", "the database has been prepared"
    (folder / "migrated").write_text("3.0.0")
    assert "PREFECT_SERVER_DATABASE_MIGRATE_ON_START" not in server.process_settings(folder, 1)


def test_a_server_lists_finished_runs_for_as_long_as_is_set_unless_the_environment_says_otherwise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(SECONDS_THAT_RUNS_STAY, "60")
    keep_finished_runs(2)
    assert os.environ[SECONDS_THAT_RUNS_STAY] == "60"
    monkeypatch.delenv(SECONDS_THAT_RUNS_STAY)
    keep_finished_runs(2)
    assert os.environ[SECONDS_THAT_RUNS_STAY] == "172800"


def test_a_free_port_is_none_that_the_system_gives_to_outgoing_connections() -> None:
    (first, _) = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()
    ports = [server.free_port() for _ in range(20)]
    assert all(1024 <= port < int(first) for port in ports) and len(set(ports)) > 1


def test_the_server_of_a_new_home_begins_with_the_tables_that_another_has_made(
    prefect_server: str, tmp_path: Path
) -> None:
    started = server._start_server(tmp_path)
    wait_until(lambda: server._record(tmp_path) is not None)
    record = server._record(tmp_path)
    assert record is not None and server.has_tables(tmp_path), "an earlier server has made them"
    wait_until(lambda: server._answers(record["url"]))
    assert ask(record["url"], "GET", FLOW_RUN) == (404, ""), "it is asked, and has no such run"
    started.terminate()
    assert started.wait() == 0
    assert server._record(tmp_path) is None


def test_a_copy_of_a_home_does_not_use_the_server_of_the_original(prefect_server: str, tmp_path: Path) -> None:
    original = Path(os.environ["TURNWISE_HOME"]) / "prefect"
    record = server._record(original)
    assert record is not None and record["url"] == prefect_server
    shutil.copy(original / "server.json", tmp_path)
    assert server._record(tmp_path) is None


def test_the_server_of_a_home_that_is_moved_ends(tmp_path: Path) -> None:
    folder, moved = tmp_path / "prefect", tmp_path / "moved"
    folder.mkdir()
    started = server._start_server(folder)
    wait_until(lambda: (record := server._record(folder)) is not None and server._answers(record["url"]))
    folder.rename(moved)  # one that is still opening its database ends, too, but with an error
    assert started.wait() == 0
    assert server._record(moved) is None


def test_a_server_that_runs_is_found_at_once(prefect_server: str) -> None:
    client = start_client(Path(os.environ["PREFECT_HOME"]).parent)
    assert client.communicate() == (prefect_server + "\n", "")


def ask(url: str, method: str, path: str, **headers: str) -> tuple[int, str]:
    """The status of an answer, and the origins that it lets read it."""
    parts = urllib.parse.urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port)
    with contextlib.closing(connection):
        connection.request(method, path, headers={name.replace("_", "-"): value for name, value in headers.items()})
        answer = connection.getresponse()
        return answer.status, answer.headers.get("Access-Control-Allow-Origin", "")


FLOW_RUN = "/api/flow_runs/00000000-0000-0000-0000-000000000000"


def test_no_page_but_its_own_may_use_the_server(prefect_server: str) -> None:
    port = urllib.parse.urlsplit(prefect_server).port
    for own in (f"http://127.0.0.1:{port}", f"http://localhost:{port}"):
        preflight = {"Origin": own, "Access_Control_Request_Method": "DELETE"}
        assert ask(prefect_server, "OPTIONS", FLOW_RUN, **preflight) == (200, own)
        assert ask(prefect_server, "DELETE", FLOW_RUN, Origin=own) == (404, own), "it is asked, and has no such run"
        assert ask(prefect_server, "GET", "/ui-settings", Origin=own) == (200, own)
    for foreign in ("http://evil.example", "http://127.0.0.1:1", "https://127.0.0.1", "null"):
        preflight = {"Origin": foreign, "Access_Control_Request_Method": "DELETE"}
        assert ask(prefect_server, "OPTIONS", FLOW_RUN, **preflight) == (403, "")
        assert ask(prefect_server, "DELETE", FLOW_RUN, Origin=foreign) == (403, "")
        assert ask(prefect_server, "GET", "/api/health", Origin=foreign) == (403, "")


def test_a_page_of_another_origin_hears_no_events(prefect_server: str) -> None:
    events = prefect_server.replace("http://", "ws://") + "/events/out"
    with pytest.raises(InvalidStatus, match="403"):
        connect(events, origin=Origin("http://evil.example"))
    with connect(events, subprotocols=[Subprotocol("prefect")]):
        pass  # as Prefect's own client does, which sends no origin


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "[::1", ""])
def test_a_name_that_others_have_pointed_at_this_machine_is_refused(prefect_server: str, host: str) -> None:
    assert ask(prefect_server, "GET", "/api/health", Host=host) == (421, "")
    assert ask(prefect_server, "GET", "/api/health", Host="localhost:1")[0] == 200  # a port may be forwarded


def test_the_servers_own_page_is_served(prefect_server: str) -> None:
    assert ask(prefect_server, "GET", "/runs") == (200, "")


def test_the_server_of_the_users_choice_is_taken_as_it_is(
    prefect_server: str, turnwise_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "_own_addresses", set())
    monkeypatch.setenv("PREFECT_API_URL", prefect_server)
    monkeypatch.delitem(sys.modules, "prefect", raising=False)
    for name in ("NO_PROXY", "no_proxy", "PREFECT_LOGGING_LEVEL"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    assert server.ensure_server() == prefect_server
    assert not turnwise_home.exists()
    assert os.environ["PREFECT_LOGGING_LEVEL"] == "WARNING"


@contextlib.contextmanager
def answering(status: int, body: bytes) -> Iterator[str]:
    """A server of something else; status 0: it takes connections and says nothing."""

    class Answer(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if status:
                self.send_response(status)
                self.end_headers()
                self.wfile.write(body)

        def log_message(self, *arguments: object) -> None:
            """Say nothing."""

    with socket.create_server(("127.0.0.1", 0)) as silent:
        if not status:
            yield f"http://127.0.0.1:{silent.getsockname()[1]}/api"
            return
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answer) as other:
        thread = threading.Thread(target=other.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{other.server_port}/api"
        other.shutdown()
        thread.join()


def refusal_of(url: str, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("PREFECT_API_URL", url)
    monkeypatch.setattr(server, "SECONDS_TO_ANSWER", 0.5)
    with pytest.raises(ConfigurationError) as refused:
        server.ensure_server()
    said = str(refused.value)
    assert said.startswith("PREFECT_API_URL must be the address of a Prefect server that answers; ") and url in said
    assert "\n" not in said
    return said


@pytest.mark.parametrize(
    ("url", "found"),
    [
        ("http://127.0.0.1:9/api", "refused"),
        ("https://127.0.0.1:9/api", "refused"),
        ("http://[::1]:9/api", "Errno"),
        ("127.0.0.1:4200/api", "no address"),
        ("localhost:4200/api", "no address"),
        ("http://127.0.0.1:port/api", "no address"),
        ("http:///api", "no address"),
    ],
)
def test_a_server_of_the_users_choice_that_does_not_answer_is_refused(
    url: str, found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert found in refusal_of(url, monkeypatch)


@pytest.mark.parametrize(
    ("status", "body", "found"),
    [(0, b"", "timed out"), (404, b"", "ends in /api"), (200, b"<html>", "ends in /api")],
)
def test_what_answers_there_must_be_prefect(
    status: int, body: bytes, found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with answering(status, body) as url:
        assert found in refusal_of(url, monkeypatch)


def test_a_proxy_that_cannot_be_used_for_a_far_server_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALL_PROXY", "socks://127.0.0.1:1080")
    assert "socks" in refusal_of("http://prefect.example:4200/api", monkeypatch)


def test_a_server_of_this_process_that_has_ended_is_started_again(
    turnwise_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = "http://127.0.0.1:9/api"
    monkeypatch.setattr(server, "_own_addresses", {gone})
    monkeypatch.setattr(server, "_await_server", lambda folder: "http://127.0.0.1:10/api")
    monkeypatch.setattr(server, "_keep_alive", lambda folder: None)
    monkeypatch.setenv("PREFECT_API_URL", gone)
    monkeypatch.setenv("PREFECT_HOME", str(turnwise_home))
    monkeypatch.delitem(sys.modules, "prefect", raising=False)
    assert server.ensure_server() == os.environ["PREFECT_API_URL"] == "http://127.0.0.1:10/api"


def test_a_server_that_is_lost_on_the_way_is_told_in_one_sentence(
    prefect_server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = httpx.ConnectError("[Errno 111] Connection refused")
    for error in (lost, ValueError("a mistake")):
        server.require_server(error)  # it answers: the error is of something else
    monkeypatch.setenv("PREFECT_API_URL", "http://127.0.0.1:9/api")
    with pytest.raises(TurnwiseError, match="TW-prefect-lost"):
        server.require_server(lost)
    server.require_server(ValueError("a mistake"))


def test_a_server_that_does_not_start_is_reported_with_its_log(
    turnwise_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[Path] = []

    def fail(folder: Path) -> subprocess.Popen[bytes]:
        started.append(folder)
        return subprocess.Popen(["false"])

    monkeypatch.setattr(server, "_start_server", fail)
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    with pytest.raises(TurnwiseError, match=r"server\.log.*TW-prefect-unreachable"):
        server.ensure_server()
    assert len(started) == server.ATTEMPTS


def test_a_server_that_was_killed_leaves_its_place_to_the_next_which_goes_on_after_a_stop(tmp_path: Path) -> None:
    first = server._start_server(tmp_path)
    wait_until(lambda: server._record(tmp_path) is not None)
    first.kill()
    first.wait()
    left = server._record(tmp_path)
    second = server._start_server(tmp_path)
    wait_until(lambda: server._record(tmp_path) not in (None, left))
    record = server._record(tmp_path)
    assert record is not None and int(record["process"]) == second.pid
    second.send_signal(signal.SIGSTOP)
    wait_until(lambda: "\nState:\tT" in Path(f"/proc/{second.pid}/status").read_text())
    second.send_signal(signal.SIGCONT)
    wait_until(lambda: server._answers(record["url"]))
    second.terminate()
    assert second.wait() == 0
    assert not server._is_locked(tmp_path) and server._record(tmp_path) is None


def test_nothing_of_prefect_is_imported() -> None:
    script = "import sys, flows.runtime.server; print([name for name in sys.modules if name.startswith('prefect')])"
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, check=True).stdout == b"[]\n"
