"""One local Prefect server per home, started when needed and reused: `ensure_server`.

The server is Prefect's own, on the loopback address and a free port, with its database and log in `<home>/prefect`.
Its process, `python -m flows.runtime.server`, ends itself after ten minutes without a heartbeat from any client. If two
start at once, one gets the lock and the other exits.

    <home>/prefect/server.json       the address, the process id of the server, and this folder
    <home>/prefect/supervisor.lock   held by the server; the kernel releases it when the server dies
    <home>/prefect/heartbeat         touched by every client every 20 seconds
    <home>/prefect/server.log        the server's output
    <home>/prefect/prefect.db        the database
    <home>/prefect/migrated          the version of Prefect whose tables it has

Making the tables takes half of a first start. So they are made once per installation, and the server of a new home
begins with a copy (`turnwise.store.sqlite_files`).

Nothing here imports Prefect: it reads its settings at import, so they must be in the environment before.

Why not `prefect server start --background` (3.7.7, measured on two busy cores, processor seconds until it answers): it
takes 30 with a new database, 26 after that and 21 with the settings below, for 21 and 15 here, since its command line
imports all of Prefect once more (half of the 15 were the search for garbage, which is rare now, and a process that
watched the server); `prefect server stop` takes 7 for 0.8. A server that was killed leaves its file
`server.pid`, because of which the next start is refused (status 1) until somebody gives `prefect server stop`. It never
stops by itself, it has one port for all homes unless each is given one, and its pages are open to every host name and
origin (`application` closes them).

A server on this machine, or one that NO_PROXY names, is reached without a proxy. Prefect's client reads HTTP_PROXY,
HTTPS_PROXY and ALL_PROXY, and makes a connection for each of them, whether or not it will use it. For a SOCKS proxy
that fails where httpx cannot make one (`socksio` is not installed, or the address begins with `socks://`), although
NO_PROXY names the server. So nothing of the environment is read for such a server.
"""

from __future__ import annotations

import fcntl
import http.client
import importlib.metadata
import ipaddress
import json
import os
import secrets
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from turnwise.errors import ConfigurationError, TurnwiseError
from turnwise.own_process import collect_rarely, leave
from turnwise.project import home
from turnwise.store.atomic_write import make_file
from turnwise.store.full_disk import require_room
from turnwise.store.sqlite_files import copy_prepared, keep_prepared, sqlite_address

if TYPE_CHECKING:
    import uvicorn
    from starlette.types import ASGIApp

CLIENT_SETTINGS = {
    "DO_NOT_TRACK": "true",
    "PREFECT_INTERNAL_LOGGING_LEVEL": "CRITICAL",
    "PREFECT_CLIENT_RETRY_EXTRA_CODES": "500",
    "PREFECT_LOGGING_EXTRA_LOGGERS": "flows,tasks,turnwise",
    "PREFECT_LOGGING_LEVEL": "WARNING",
    "PREFECT_LOGGING_TO_API_WHEN_MISSING_FLOW": "ignore",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
}
"""Settings of a client of any server; the user's environment takes precedence.

500 is what Prefect's server answers while its database is restarted: the client asks again for a minute, as it does by
itself after 503. The internal loggers would print each event that a lost server did not take. Our warnings
in a flow run, and what `flows.runtime.flow_runs.flow_run_log` adds, are the tab *Logs* of its page.
"""

UNNEEDED_SERVICES = (
    "CANCELLATION_CLEANUP",
    "CLEANUP_RECONCILER",
    "EVENT_PERSISTER",
    "FOREMAN",
    "LATE_RUNS",
    "PAUSE_EXPIRATIONS",
    "REPOSSESSOR",
    "SCHEDULER",
    "TRIGGERS",
)
"""Services for deployments and automations, which need a server of their own (`prefect server start`), and the one that
keeps every event for the page *Event Feed*: it costs as much as all else that the server does for a stage. Flow runs,
task runs and their states are recorded without it."""

SECONDS_THAT_RUNS_STAY = "PREFECT_SERVER_SERVICES_DB_VACUUM_RETENTION_PERIOD"
REMOVAL_OF_OLD_RUNS = {
    "PREFECT_SERVER_SERVICES_DB_VACUUM_ENABLED": "events,flow_runs",
    SECONDS_THAT_RUNS_STAY: str(30 * 24 * 3600),
}
"""Prefect's own clean-up service, at the server's start and every hour; runs stay for 30 days where no experiment says
otherwise (`keep_finished_runs`). The environment takes precedence."""


def keep_finished_runs(days: int) -> None:
    """Have a server that is started from here on list a finished run for so many days. Results stay cached for longer:
    they are found by key, not by run. What the environment says already takes precedence.
    """
    # A variable and not an argument: the server is a grandchild, which inherits the environment of its starter.
    os.environ.setdefault(SECONDS_THAT_RUNS_STAY, str(days * 24 * 3600))


BATCHED_RECORDS = {
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_BATCH_SIZE": "100",
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_FLUSH_INTERVAL": "2",
}
"""Write task states every two seconds. Prefect's default, one at a time, takes a tenth of a core."""


DATABASE = "prefect.db"
ORIGINS = "PREFECT_SERVER_CORS_ALLOWED_ORIGINS"


def address(port: int) -> str:
    """The address of the API of a server on this port."""
    return f"http://127.0.0.1:{port}/api"


def free_port() -> int:
    """A port of the loopback address that nobody listens on.

    It is below those that the system gives to outgoing connections, one of which could take it before the server does.
    """
    while True:
        port = 20_000 + secrets.randbelow(12_000)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def application() -> ASGIApp:
    """Prefect's application, for this machine and the server's own pages alone.

    Prefect's API has no password. Unprotected, any web page that the user visits could delete runs through the browser.
    """
    from prefect.server.api.server import create_app

    from envs.service.guards import OwnHost, OwnOrigin

    own_pages = os.environ[ORIGINS].split(",")  # of 127.0.0.1 and of localhost, which ask each other
    return OwnHost(OwnOrigin(create_app(), own_pages), host="127.0.0.1", others=())


def process_settings(folder: Path, port: int) -> dict[str, str]:
    """The environment variables of the server."""
    variables = {
        **CLIENT_SETTINGS,
        "PREFECT_HOME": str(folder),
        "PREFECT_API_URL": address(port),
        ORIGINS: f"http://127.0.0.1:{port},http://localhost:{port}",
        "PREFECT_SERVER_DATABASE_CONNECTION_URL": sqlite_address(folder / DATABASE, "sqlite+aiosqlite"),
        **{f"PREFECT_SERVER_SERVICES_{service}_ENABLED": "false" for service in UNNEEDED_SERVICES},
        **{name: os.environ.get(name, value) for name, value in REMOVAL_OF_OLD_RUNS.items()},
        **BATCHED_RECORDS,
    }
    if has_tables(folder):
        # Checking for migrations takes half of the start, and the same version of Prefect has none.
        variables["PREFECT_SERVER_DATABASE_MIGRATE_ON_START"] = "false"
    return variables


def has_tables(folder: Path) -> bool:
    """Whether the folder's database has the tables of the installed Prefect."""
    marker = folder / "migrated"
    prepared = marker.is_file() and (folder / DATABASE).is_file()
    return prepared and marker.read_text(encoding="utf-8") == importlib.metadata.version("prefect")


def copy_tables(folder: Path) -> None:
    """Begin the folder's database with the tables of another home's server, where there is one and it has none yet."""
    database = folder / DATABASE
    if not database.exists() and copy_prepared(_tables(), database):
        _mark(folder)


def keep_tables(folder: Path) -> None:
    """Note that a server has made the tables of its database; where it holds no runs, keep a copy for other homes."""
    with closing(sqlite3.connect(folder / DATABASE)) as database:
        is_new = database.execute("SELECT count(*) FROM flow_run").fetchone() == (0,)
    if is_new:
        keep_prepared(_tables(), folder / DATABASE)
    _mark(folder)


def _mark(folder: Path) -> None:
    (folder / "migrated").write_text(importlib.metadata.version("prefect"), encoding="utf-8")


def _tables() -> str:
    return f"prefect-{importlib.metadata.version('prefect')}"


START_TIMEOUT_SECONDS = 180.0
HEARTBEAT_SECONDS = 20.0
SECONDS_TO_ANSWER = 5.0
SECONDS_TO_END = 10.0
IDLE_SECONDS = 600.0
ATTEMPTS = 3

_own_addresses: set[str] = set()
"""The addresses of the home's own server that this process has put into the environment."""


def ensure_server() -> str:
    """Make sure that a Prefect server answers, and return its address, which is also put into the environment.

    A server that the user chose (PREFECT_API_URL) must answer; otherwise the home's own is reused or started. Call this
    before Prefect is imported. It takes milliseconds if the server runs; on two cores about 6 s if it must be started,
    and 12 s if its tables must be made first, once per installation.

    Raises:
        ConfigurationError: the server that the user chose does not answer.
        TurnwiseError: the home's own does not answer within three minutes.
        DiskFull: it does not answer, and the disk of its folder is full.
    """
    user_url = os.environ.get("PREFECT_API_URL")
    if user_url and user_url not in _own_addresses:
        _configure_client({})
        _require_user_server(user_url)
        return user_url
    folder = _folder()
    url = _await_server(folder)
    os.environ.pop("PREFECT_API_URL", None)  # of a server of this home that has ended since
    _own_addresses.add(url)
    _configure_client({"PREFECT_API_URL": url, "PREFECT_HOME": str(folder)})
    _keep_alive(folder)
    return url


def stop_server() -> None:
    """Stop the home's server, if there is one, and wait until it is gone."""
    folder = _folder()
    while _is_locked(folder):
        if record := _record(folder):
            os.kill(int(record["process"]), signal.SIGTERM)
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
        "again, which goes on where this one stopped",
        "TW-prefect-lost",
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


def _require_user_server(url: str) -> None:
    """Raise ConfigurationError unless Prefect's server answers at the address that the user chose.

    One that is behind a proxy, or is asked through TLS with a certificate of its own, is left to Prefect's client.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port or {"http": 80, "https": 443}[parts.scheme]
    except (ValueError, KeyError):
        host = None
    if host is None:
        raise _not_answering(url, "that is no address")
    if not is_direct(url) and {parts.scheme, "all"} & getproxies().keys():
        import httpx  # as Prefect does

        try:
            httpx.Client().close()
        except (ImportError, ValueError) as error:
            raise _not_answering(url, f"the proxy that leads there cannot be used: {error}") from error
        return
    try:
        socket.create_connection((host, port), timeout=SECONDS_TO_ANSWER).close()
        answer = _health(url) if parts.scheme == "http" else (200, b"true")
    except (OSError, http.client.HTTPException) as error:
        raise _not_answering(url, str(error) or type(error).__name__) from error
    if answer[0] < 500 and (answer[0] == 404 or (answer[0] == 200 and answer[1] != b"true")):
        raise _not_answering(
            url, "another server does, or another path of it: the address of Prefect's API ends in /api"
        )


def _not_answering(url: str, reason: str) -> ConfigurationError:
    return ConfigurationError(
        f"PREFECT_API_URL must be the address of a Prefect server that answers; {url} does not ({reason}): start it "
        "with `prefect server start`, or unset the variable, so that this project starts its own",
        "TW-prefect-unreachable",
    )


def _await_server(folder: Path) -> str:
    began = time.monotonic()
    servers: list[subprocess.Popen[bytes]] = []
    while time.monotonic() - began < START_TIMEOUT_SECONDS:
        # Touch the heartbeat first: a server about to end withdraws the address and then checks the heartbeat.
        (folder / "heartbeat").touch()
        record = _record(folder)
        if record and _is_locked(folder) and _answers(record["url"]):
            return record["url"]
        if not _is_locked(folder) and all(server.poll() is not None for server in servers):
            if len(servers) == ATTEMPTS:
                break
            servers.append(_start_server(folder))
        time.sleep(0.1)
    require_room(folder)
    raise TurnwiseError(
        f"Prefect's server must answer within {START_TIMEOUT_SECONDS:.0f} s; it did not, and what it said is in "
        f"{folder / 'server.log'}: start one with `prefect server start` and set PREFECT_API_URL to its address",
        "TW-prefect-unreachable",
    )


def _record(folder: Path) -> dict[str, str] | None:
    """What a server of this folder has published; None in a copy of the folder, which has no server yet."""
    try:
        record: dict[str, str] = json.loads((folder / "server.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    return record if record.get("folder", str(folder)) == str(folder) else None


def _is_locked(folder: Path) -> bool:
    """Whether a server is running: it holds the lock."""
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
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=SECONDS_TO_ANSWER)
    try:
        connection.request("GET", f"{parts.path.rstrip('/')}/health")
        answer = connection.getresponse()
        return answer.status, answer.read(100).strip()
    finally:
        connection.close()


def _start_server(folder: Path, idle_seconds: float = IDLE_SECONDS) -> subprocess.Popen[bytes]:
    with (folder / "server.log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "flows.runtime.server", str(folder), str(idle_seconds)],
            cwd=Path(__file__).resolve().parents[2],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


_folders_with_heartbeat: set[Path] = set()


def _keep_alive(folder: Path) -> None:
    """Touch the heartbeat as long as this process lives."""

    def beat() -> None:
        while folder.is_dir():
            (folder / "heartbeat").touch()
            time.sleep(HEARTBEAT_SECONDS)

    if folder not in _folders_with_heartbeat:
        _folders_with_heartbeat.add(folder)
        threading.Thread(target=beat, name="prefect-server-heartbeat", daemon=True).start()


class LocalServer:
    """The server of a folder, in this process; ends after some time without a heartbeat, or on SIGTERM."""

    def __init__(self, folder: Path, idle_seconds: float) -> None:
        self.folder = folder
        self.idle_seconds = idle_seconds
        self.port = free_port()

    def run(self) -> int:
        """Serve until it should end. Returns the exit status: 1 if the server failed."""
        with (self.folder / "supervisor.lock").open("a") as lock:
            if not _try_lock(lock):
                return 0
            (self.folder / "heartbeat").touch()
            copy_tables(self.folder)
            make_file(self.folder / DATABASE)
            os.environ.update(process_settings(self.folder, self.port))
            os.chdir(self.folder)  # where Prefect would look for settings of a project
            import uvicorn

            server = uvicorn.Server(
                uvicorn.Config(
                    application, factory=True, host="127.0.0.1", port=self.port, log_level="warning", lifespan="on"
                )
            )
            serving = threading.Thread(target=server.run, name="server", daemon=True)
            serving.start()
            try:
                self._watch(server, serving, lock)
                return 0 if serving.is_alive() else 1
            finally:
                (self.folder / "server.json").unlink(missing_ok=True)
                server.should_exit = True
                serving.join(SECONDS_TO_END)

    def _publish(self) -> None:
        temporary = self.folder / f"server.json.{os.getpid()}"
        record = {"url": address(self.port), "process": str(os.getpid()), "folder": str(self.folder)}
        temporary.write_text(json.dumps(record), encoding="utf-8")
        os.replace(temporary, self.folder / "server.json")

    def _watch(self, server: uvicorn.Server, serving: threading.Thread, lock: IO[str]) -> None:
        """Publish the address; return when the server has ended, when it is no longer needed, or on SIGTERM.

        It is not needed where the folder was moved or deleted: its database is opened by path.
        """
        heartbeat, idle_since = self._heartbeat(lock), time.monotonic()
        if published := has_tables(self.folder):
            self._publish()
        stop_requested = threading.Event()
        # Python's sigtimedwait returns as if it had received the signal when a stopped process is continued.
        signal.signal(signal.SIGTERM, lambda *_: stop_requested.set())
        pause = min(2.0, self.idle_seconds / 5)
        while not stop_requested.wait(pause if published else 0.1) and serving.is_alive() and heartbeat is not None:
            if not published and (published := server.started):
                keep_tables(self.folder)  # before any client knows the address and writes to them
                self._publish()
            if (latest := self._heartbeat(lock)) != heartbeat:
                heartbeat, idle_since = latest, time.monotonic()
            elif time.monotonic() - idle_since > self.idle_seconds:
                (self.folder / "server.json").unlink(missing_ok=True)
                if self._heartbeat(lock) == heartbeat:
                    return
                self._publish()

    def _heartbeat(self, lock: IO[str]) -> int | None:
        """Time of the last heartbeat in nanoseconds; None where the folder was moved or deleted."""
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(lock.fileno()), (self.folder / "supervisor.lock").stat()):
                return (self.folder / "heartbeat").stat().st_mtime_ns
        return None


def _try_lock(lock: IO[str]) -> bool:
    """Try to take the lock. Clients that check it hold it for an instant, so this retries for a second."""
    for _ in range(20):
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(0.05)
        else:
            return True
    return False


LOOPBACK = ("127.0.0.1", "localhost", "::1")


def is_direct(url: str) -> bool:
    """Whether no proxy is between this machine and the server at this address: its own, or one that NO_PROXY names."""
    host = urlsplit(url).hostname or ""
    with suppress(ValueError):  # a name is no address
        if ipaddress.ip_address(host).is_loopback:
            return True
    return host == "localhost" or bool(proxy_bypass(host))


def bypass_proxies() -> None:
    """Exclude the loopback address from proxies, which cannot reach it; Prefect's client would use them for it."""
    set_already = ",".join(os.environ.get(name, "") for name in ("NO_PROXY", "no_proxy"))
    hosts = [name.strip() for name in set_already.split(",") if name.strip()]
    os.environ["NO_PROXY"] = os.environ["no_proxy"] = ",".join(dict.fromkeys([*hosts, *LOOPBACK]))


def connect_directly(url: str) -> None:
    """Have Prefect's clients of this process ask the server at `url` without a proxy, if there is none between.

    Prefect has no setting for it.
    """
    if not is_direct(url):
        return
    from prefect.client import base, orchestration

    for name in ("PrefectHttpxSyncClient", "PrefectHttpxAsyncClient"):
        setattr(orchestration, name, partial(getattr(base, name), trust_env=False))


if __name__ == "__main__":
    collect_rarely()
    leave(LocalServer(Path(sys.argv[1]), float(sys.argv[2])).run())
