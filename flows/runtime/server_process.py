"""The process of Prefect's server: how it is started and ended, with which settings, and on which database.

Making the tables takes half of a first start. So they are made once per installation, and the server of a new home
begins with a copy (`turnwise.store.prepared_databases`).

    <home>/prefect/prefect.db    the database
    <home>/prefect/migrated      the version of Prefect whose tables it has
"""

from __future__ import annotations

import ctypes
import importlib.metadata
import os
import signal
import socket
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

from flows.runtime.own_pages import ORIGINS_VARIABLE, own_origins
from flows.runtime.server_settings import BATCHED_RECORDS, CLIENT_SETTINGS, REMOVAL_OF_OLD_RUNS, UNNEEDED_SERVICES
from turnwise.store.atomic_write import make_file
from turnwise.store.prepared_databases import copy_prepared, keep_prepared
from turnwise.store.sqlite_address import sqlite_address

DATABASE = "prefect.db"
_LIBC = ctypes.CDLL(None)
_PR_SET_PDEATHSIG = 1


def address(port: int) -> str:
    """The address of the API of a server on this port."""
    return f"http://127.0.0.1:{port}/api"


def free_port() -> int:
    """A port of the loopback address that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def start(folder: Path, port: int) -> subprocess.Popen[bytes]:
    """Start the server of a folder, with the tables of another home's server where the folder has no database."""
    copy_tables(folder)
    make_file(folder / DATABASE)
    app = ["--factory", "flows.runtime.own_pages:application", "--app-dir", str(Path(__file__).resolve().parents[2])]
    app += ["--host", "127.0.0.1", "--port", str(port)]
    return subprocess.Popen(
        [sys.executable, "-m", "uvicorn", *app, "--log-level", "warning", "--lifespan", "on"],
        cwd=folder,
        env={**os.environ, **settings(folder, port)},
        preexec_fn=die_with_parent,
    )


def settings(folder: Path, port: int) -> dict[str, str]:
    """The environment variables of the server."""
    chosen = {
        **CLIENT_SETTINGS,
        "PREFECT_HOME": str(folder),
        "PREFECT_API_URL": address(port),
        ORIGINS_VARIABLE: own_origins(port),
        "PREFECT_SERVER_DATABASE_CONNECTION_URL": sqlite_address(folder / DATABASE, "sqlite+aiosqlite"),
        **{f"PREFECT_SERVER_SERVICES_{service}_ENABLED": "false" for service in UNNEEDED_SERVICES},
        **{name: os.environ.get(name, value) for name, value in REMOVAL_OF_OLD_RUNS.items()},
        **BATCHED_RECORDS,
    }
    if has_tables(folder):
        # Checking for migrations takes half of the start, and the same version of Prefect has none.
        chosen["PREFECT_SERVER_DATABASE_MIGRATE_ON_START"] = "false"
    return chosen


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


def die_with_parent() -> None:
    """On Linux, have the kernel stop the server if its supervisor is killed, so that it is not left running."""
    if sys.platform == "linux":
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def end(server: subprocess.Popen[bytes]) -> None:
    """End the server, by force if it takes longer than ten seconds."""
    server.terminate()
    try:
        server.wait(timeout=10)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()


def _mark(folder: Path) -> None:
    (folder / "migrated").write_text(importlib.metadata.version("prefect"), encoding="utf-8")


def _tables() -> str:
    return f"prefect-{importlib.metadata.version('prefect')}"
