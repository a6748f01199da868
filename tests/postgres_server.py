"""A real PostgreSQL server on the loopback address, with its files in a temporary folder: Debian's, version 15."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from flows.runtime.server import free_port
from tests.programs import POSTGRESQL, skip_without


class PostgresServer:
    """The server, which can be restarted as after a crash."""

    def __init__(self, folder: Path) -> None:
        self._data = folder / "data"
        self._as_user = ["runuser", "-u", "postgres", "--"] if os.getuid() == 0 else []
        if self._as_user:
            folder.chmod(0o755)
            shutil.chown(folder, "postgres", "postgres")
        self.port = free_port()
        self._run("initdb", "-D", str(self._data), "-U", "postgres", "-A", "trust", "--no-sync", "-E", "UTF8")
        self._options = f"-p {self.port} -c listen_addresses=127.0.0.1 -c unix_socket_directories={folder} -c fsync=off"

    def start(self) -> None:
        log = str(self._data.parent / "log")
        self._run("pg_ctl", "-D", str(self._data), "-w", "-l", log, "-o", self._options, "start")

    def stop(self) -> None:
        self._run("pg_ctl", "-D", str(self._data), "-m", "immediate", "stop")

    def make(self, database: str) -> str:
        """Make a database, and return its address without the scheme."""
        self._run("createdb", "-h", "127.0.0.1", "-p", str(self.port), "-U", "postgres", database)
        return f"postgres@127.0.0.1:{self.port}/{database}"

    def rows(self, database: str, query: str) -> list[Any]:
        """What a query answers."""
        import psycopg

        with psycopg.connect(f"postgresql://postgres@127.0.0.1:{self.port}/{database}") as connection:
            return connection.execute(query).fetchall()

    def _run(self, program: str, *arguments: str) -> None:
        command = [*self._as_user, str(POSTGRESQL / program), *arguments]
        # No pipes: the server would keep them open.
        subprocess.run(command, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, cwd="/tmp")


@contextmanager
def running() -> Iterator[PostgresServer]:
    """The server while the block runs; the test is skipped where PostgreSQL or its driver is not installed."""
    pytest.importorskip("psycopg", reason="the extra postgres is not installed")
    skip_without("postgresql")
    with tempfile.TemporaryDirectory(prefix="turnwise-postgres-", dir="/tmp") as folder:
        server = PostgresServer(Path(folder))
        server.start()
        try:
            yield server
        finally:
            server.stop()
