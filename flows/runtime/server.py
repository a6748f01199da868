"""One local Prefect server per home, started when needed and reused: `ensure_server`.

The server is Prefect's own, on the loopback address and a free port, with its database and log in `<home>/prefect`. A
small supervisor process, `python -m flows.runtime.server`, starts it, and stops it after ten minutes without a
heartbeat from any client. If two supervisors start at once, one gets the lock and the other exits.

    <home>/prefect/server.json       the address, the process id of the supervisor, and this folder
    <home>/prefect/supervisor.lock   held by the supervisor; the kernel releases it when the supervisor dies
    <home>/prefect/heartbeat         touched by every client every 20 seconds
    <home>/prefect/server.log        the server's output
    <home>/prefect/migrated          the version of Prefect that prepared the database

Nothing here imports Prefect: it reads its settings at import, so they must be in the environment before.

Why not `prefect server start --background` (3.7.7, measured on two busy cores, processor seconds until it answers): it
takes 30 with a new database, 26 after that and 21 with the settings below, for 21 and 15 here, since its command line
imports all of Prefect once more; `prefect server stop` takes 7 for 0.8. A server that was killed leaves its file
`server.pid`, because of which the next start is refused (status 1) until somebody gives `prefect server stop`. It never
stops by itself, it has one port for all homes unless each is given one, and its pages are open to every host name and
origin (`flows.runtime.own_pages` closes them).
"""

from __future__ import annotations

import argparse
import fcntl
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import IO

from flows.runtime.direct_clients import bypass_proxies, is_direct
from flows.runtime.server_process import address, end, free_port, has_tables, keep_tables, start
from flows.runtime.server_settings import CLIENT_SETTINGS
from turnwise.errors import ConfigurationError, TurnwiseError
from turnwise.project import home
from turnwise.store.full_disk import require_room

START_TIMEOUT_SECONDS = 180.0
HEARTBEAT_SECONDS = 20.0
SECONDS_TO_ANSWER = 5.0
IDLE_SECONDS = 600.0
ATTEMPTS = 3

_own_addresses: set[str] = set()
"""The addresses of the home's own server that this process has put into the environment."""


def ensure_server(progress: Callable[[float], None] | None = None) -> str:
    """Make sure that a Prefect server answers, and return its address, which is also put into the environment.

    A server that the user chose (PREFECT_API_URL) must answer; otherwise the home's own is reused or started. Call this
    before Prefect is imported. It takes milliseconds if the server runs; on two cores about 6 s if it must be started,
    and 12 s if its tables must be made first, once per installation.

    Args:
        progress: called about once a second with the seconds spent waiting for the server.

    Raises:
        ConfigurationError: the server that the user chose does not answer.
        TurnwiseError: the home's own does not answer within three minutes.
        DiskFull: it does not answer, and the disk of its folder is full.
    """
    chosen = os.environ.get("PREFECT_API_URL")
    if chosen and chosen not in _own_addresses:
        _configure_client({})
        _require_chosen(chosen)
        return chosen
    folder = _folder()
    url = _await_server(folder, progress)
    os.environ.pop("PREFECT_API_URL", None)  # of a server of this home that has ended since
    _own_addresses.add(url)
    _configure_client({"PREFECT_API_URL": url, "PREFECT_HOME": str(folder)})
    _keep_alive(folder)
    return url


def stop_server() -> None:
    """Stop the home's server, if there is one, and wait until it is gone."""
    folder = _folder()
    while _supervised(folder):
        if record := _record(folder):
            os.kill(int(record["supervisor"]), signal.SIGTERM)
        time.sleep(0.1)


def require_server(error: Exception) -> None:
    """Raise TurnwiseError where an exception comes from Prefect's server being lost on the way.

    Prefect's client has asked it again before it gave up.
    """
    httpx = sys.modules.get("httpx")
    url = os.environ.get("PREFECT_API_URL")
    if httpx is None or url is None or not isinstance(error, httpx.TransportError) or _answers(url):
        return
    raise TurnwiseError(
        f"Prefect's server at {url} must answer until the end; it does not any more ({error}): give the same command "
        "again, which goes on where this one stopped"
    ) from error


def _folder() -> Path:
    folder = home() / "prefect"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _configure_client(settings: dict[str, str]) -> None:
    for name, value in {**CLIENT_SETTINGS, **settings}.items():
        os.environ[name] = os.environ.get(name) or value
    bypass_proxies()
    if "prefect" in sys.modules:
        from prefect.context import refresh_global_settings_context

        refresh_global_settings_context()


def _require_chosen(url: str) -> None:
    """Raise ConfigurationError unless Prefect's server answers at the address that the user chose.

    One that is behind a proxy, or is asked through TLS with a certificate of its own, is left to Prefect's client.
    """
    try:
        parts = urllib.parse.urlsplit(url)
        host, port = parts.hostname, parts.port or {"http": 80, "https": 443}[parts.scheme]
    except (ValueError, KeyError):
        host = None
    if host is None:
        raise _not_answering(url, "that is no address")
    if not is_direct(url) and {parts.scheme, "all"} & urllib.request.getproxies().keys():
        import httpx  # as Prefect does

        try:
            httpx.Client().close()
        except (ImportError, ValueError) as error:
            raise _not_answering(url, f"the proxy that leads there cannot be used: {error}") from error
        return
    try:
        socket.create_connection((host, port), timeout=SECONDS_TO_ANSWER).close()
        found = _health(url) if parts.scheme == "http" else (200, b"true")
    except (OSError, http.client.HTTPException) as error:
        raise _not_answering(url, str(error) or type(error).__name__) from error
    if found[0] < 500 and (found[0] == 404 or (found[0] == 200 and found[1] != b"true")):
        raise _not_answering(
            url, "another server does, or another path of it: the address of Prefect's API ends in /api"
        )


def _not_answering(url: str, found: str) -> ConfigurationError:
    return ConfigurationError(
        f"PREFECT_API_URL must be the address of a Prefect server that answers; {url} does not ({found}): start it "
        "with `prefect server start`, or unset the variable, so that this project starts its own"
    )


def _await_server(folder: Path, progress: Callable[[float], None] | None) -> str:
    began = time.monotonic()
    reported = 0.0
    supervisors: list[subprocess.Popen[bytes]] = []
    while (waited := time.monotonic() - began) < START_TIMEOUT_SECONDS:
        # Touch the heartbeat first: a supervisor about to stop withdraws the address and then checks the heartbeat.
        (folder / "heartbeat").touch()
        record = _record(folder)
        if record and _supervised(folder) and _answers(record["url"]):
            return record["url"]
        if not _supervised(folder) and all(supervisor.poll() is not None for supervisor in supervisors):
            if len(supervisors) == ATTEMPTS:
                break
            supervisors.append(_start_supervisor(folder))
        if progress and waited - reported >= 1.0:
            progress(reported := waited)
        time.sleep(0.1)
    require_room(folder)
    raise TurnwiseError(
        f"Prefect's server must answer within {START_TIMEOUT_SECONDS:.0f} s; it did not, and what it said is in "
        f"{folder / 'server.log'}: start one with `prefect server start` and set PREFECT_API_URL to its address"
    )


def _record(folder: Path) -> dict[str, str] | None:
    """What a supervisor of this folder has published; None in a copy of the folder, which has no server yet."""
    try:
        record: dict[str, str] = json.loads((folder / "server.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    return record if record.get("folder", str(folder)) == str(folder) else None


def _supervised(folder: Path) -> bool:
    """Whether a supervisor is running: it holds the lock."""
    with (folder / "supervisor.lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def _answers(url: str) -> bool:
    try:
        return _health(url)[0] == 200
    except (OSError, http.client.HTTPException):
        return False


def _health(url: str) -> tuple[int, bytes]:
    """What a server answers when it is asked whether it is well. Raises OSError or HTTPException if it does not."""
    parts = urllib.parse.urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=SECONDS_TO_ANSWER)
    try:
        connection.request("GET", f"{parts.path.rstrip('/')}/health")
        answer = connection.getresponse()
        return answer.status, answer.read(100).strip()
    finally:
        connection.close()


def _start_supervisor(folder: Path, idle_seconds: float = IDLE_SECONDS) -> subprocess.Popen[bytes]:
    with (folder / "server.log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "flows.runtime.server", str(folder), "--idle-seconds", str(idle_seconds)],
            cwd=Path(__file__).resolve().parents[2],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


_kept_alive: set[Path] = set()


def _keep_alive(folder: Path) -> None:
    """Touch the heartbeat as long as this process lives."""
    if folder not in _kept_alive:
        _kept_alive.add(folder)
        threading.Thread(target=_beat, args=(folder,), name="prefect-server-heartbeat", daemon=True).start()


def _beat(folder: Path) -> None:
    while folder.is_dir():
        (folder / "heartbeat").touch()
        time.sleep(HEARTBEAT_SECONDS)


class Supervisor:
    """Starts the server; stops it after some time without a heartbeat, or on SIGTERM."""

    def __init__(self, folder: Path, idle_seconds: float) -> None:
        self.folder = folder
        self.idle_seconds = idle_seconds

    def run(self) -> int:
        """Supervise the server until it should stop. Returns the exit status: 1 if the server failed."""
        with (self.folder / "supervisor.lock").open("a") as lock:
            if not _locked(lock):
                return 0
            (self.folder / "heartbeat").touch()
            port = free_port()
            server = start(self.folder, port)
            try:
                self._watch(server, port, lock)
                return 0 if server.poll() is None else 1
            finally:
                (self.folder / "server.json").unlink(missing_ok=True)
                end(server)

    def _publish(self, port: int) -> None:
        temporary = self.folder / f"server.json.{os.getpid()}"
        record = {"url": address(port), "supervisor": str(os.getpid()), "folder": str(self.folder)}
        temporary.write_text(json.dumps(record), encoding="utf-8")
        os.replace(temporary, self.folder / "server.json")

    def _watch(self, server: subprocess.Popen[bytes], port: int, lock: IO[str]) -> None:
        """Publish the address; return when the server has ended, when it is no longer needed, or on SIGTERM.

        It is not needed where the folder was moved or deleted: its database is opened by path.
        """
        heartbeat, idle_since = self._heartbeat(), time.monotonic()
        if published := has_tables(self.folder):
            self._publish(port)
        told_to_end = threading.Event()
        # Python's sigtimedwait returns as if it had received the signal when a stopped process is continued.
        signal.signal(signal.SIGTERM, lambda *_: told_to_end.set())
        pause = min(2.0, self.idle_seconds / 5)
        while not told_to_end.wait(pause if published else 0.1) and server.poll() is None and self._is_here(lock):
            if not published and (published := _answers(address(port))):
                keep_tables(self.folder)  # before any client knows the address and writes to them
                self._publish(port)
            if (latest := self._heartbeat()) != heartbeat:
                heartbeat, idle_since = latest, time.monotonic()
            elif time.monotonic() - idle_since > self.idle_seconds:
                (self.folder / "server.json").unlink(missing_ok=True)
                if self._heartbeat() == heartbeat:
                    return
                self._publish(port)

    def _is_here(self, lock: IO[str]) -> bool:
        try:
            return os.path.samestat(os.fstat(lock.fileno()), (self.folder / "supervisor.lock").stat())
        except FileNotFoundError:
            return False

    def _heartbeat(self) -> int:
        """Time of the last heartbeat in nanoseconds; 0 when the folder was deleted, which counts as no heartbeat."""
        try:
            return (self.folder / "heartbeat").stat().st_mtime_ns
        except FileNotFoundError:
            return 0


def _locked(lock: IO[str]) -> bool:
    """Try to take the lock. Clients that check it hold it for an instant, so this retries for a second."""
    for _ in range(20):
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(0.05)
        else:
            return True
    return False


def main() -> int:
    """Supervise the server of one folder: `python -m flows.runtime.server FOLDER`."""
    parser = argparse.ArgumentParser(description="Supervise a local Prefect server.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--idle-seconds", type=float, default=IDLE_SECONDS)
    arguments = parser.parse_args()
    return Supervisor(arguments.folder, arguments.idle_seconds).run()


if __name__ == "__main__":
    sys.exit(main())
