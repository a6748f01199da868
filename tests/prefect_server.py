"""Prefect's own server on the loopback address, with a database that the test chose, as a laboratory runs it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from flows.runtime.server import address, free_port

SECONDS_TO_START = 300.0


@contextmanager
def prefect_on(database: str, folder: Path) -> Iterator[str]:
    """The server while the block runs, with its log in `folder`; its address."""
    port = free_port()
    environment = {
        **os.environ,
        "PREFECT_SERVER_DATABASE_CONNECTION_URL": f"postgresql+asyncpg://{database}",
        "PREFECT_HOME": str(folder),
        "PREFECT_API_URL": address(port),
        "DO_NOT_TRACK": "true",
    }
    command = [sys.executable, "-m", "prefect", "server", "start", "--host", "127.0.0.1", "--port", str(port)]
    with (folder / "log").open("w") as log:
        server = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + SECONDS_TO_START
        while not _answers(f"{address(port)}/health"):
            assert server.poll() is None and time.monotonic() < deadline, (folder / "log").read_text()[-2000:]
            time.sleep(0.3)
        yield address(port)
    finally:
        server.terminate()
        server.wait()


def _answers(url: str) -> bool:
    try:
        return httpx.get(url, timeout=5).status_code == 200
    except httpx.HTTPError:
        return False
