"""A project whose flows are deployed: a real Prefect server, a process worker, and what tests ask of them."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from project_copy import copy_project, importing, start

from flows.runtime.server import copy_tables, free_port, has_tables

START_SECONDS = 500.0
COMMANDS = ("deploy", "deployment", "work_pool", "automation")
"""The parts of Prefect's command line that the tests use."""


@dataclass(frozen=True)
class Site:
    """A project whose flows are deployed on a server, with a worker that waits for runs."""

    project: Path
    url: str
    run: Callable[..., str]
    """Runs a Python module in the project: `project_copy.run`, with this server."""

    def ask(self, path: str, **body: Any) -> list[dict[str, Any]]:
        """What the server's interface answers to a filter."""
        with httpx.Client(trust_env=False, timeout=60) as client:
            return client.post(f"{self.url}/{path}/filter", json=body).raise_for_status().json()


@contextlib.contextmanager
def deployed(folder: Path) -> Iterator[Site]:
    """A copy of the project, deployed on a server that ends with the block, as its worker does."""
    project = copy_project(folder / "project", drawn=False)
    port = str(free_port())
    variables = {
        "PREFECT_HOME": str(folder / "prefect"),
        "PREFECT_API_URL": f"http://127.0.0.1:{port}/api",
        "PREFECT_WORKER_QUERY_SECONDS": "1",
        "PREFECT_SERVER_DEPLOYMENTS_CONCURRENCY_SLOT_WAIT_SECONDS": "1",
        "PREFECT_SERVER_SERVICES_SCHEDULER_LOOP_SECONDS": "5",
        "PREFECT_SERVER_SERVICES_SCHEDULER_RECENT_DEPLOYMENTS_LOOP_SECONDS": "1",
        "NO_PROXY": "127.0.0.1",
        "no_proxy": "127.0.0.1",
    }
    (folder / "prefect").mkdir()
    copy_tables(folder / "prefect")
    if has_tables(folder / "prefect"):
        variables["PREFECT_SERVER_DATABASE_MIGRATE_ON_START"] = "false"
    with contextlib.ExitStack() as started:
        log = started.enter_context((folder / "server.log").open("w"))
        server = start(project, "prefect", "server", "start", "--port", port, output=log, **variables)
        started.callback(stop, server)
        wait_until_healthy(variables["PREFECT_API_URL"], server, folder / "server.log")
        modules = ("prefect.main", "prefect.workers.process", *(f"prefect.cli.{name}" for name in COMMANDS))
        run = started.enter_context(importing(project, *modules, **variables))
        run("prefect", "work-pool", "create", "turnwise", "--type", "process")
        run("prefect", "--no-prompt", "deploy", "--all")
        log = started.enter_context((folder / "worker.log").open("w"))
        worker = start(project, "prefect", "worker", "start", "--pool", "turnwise", output=log, **variables)
        started.callback(stop, worker)
        yield Site(project, variables["PREFECT_API_URL"], run)


def wait_until_healthy(url: str, server: subprocess.Popen[str], log: Path) -> None:
    began = time.monotonic()
    while time.monotonic() - began < START_SECONDS:
        assert server.poll() is None, log.read_text()
        with contextlib.suppress(httpx.TransportError):
            if httpx.get(f"{url}/health", timeout=5, trust_env=False).is_success:
                return
        time.sleep(0.2)
    raise AssertionError(log.read_text())


def wait_until(holds: Callable[[], bool], what: str) -> None:
    """Ask the server again and again, since its services and its worker act in their own time."""
    began = time.monotonic()
    while time.monotonic() - began < START_SECONDS:
        with contextlib.suppress(httpx.TimeoutException):  # a server on a busy machine
            if holds():
                return
        time.sleep(0.3)
    raise AssertionError(f"{what}; that has not come")


def stop(process: subprocess.Popen[str]) -> None:
    """End a process and all that it started: what a killed server leaves behind would live for ever."""
    for number, patience in ((signal.SIGTERM, 3), (signal.SIGKILL, None)):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=patience)
