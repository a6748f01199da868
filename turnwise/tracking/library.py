"""MLflow itself, imported late, with little logging and without telemetry; and the command that starts its UI."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterator
from functools import cache
from types import ModuleType
from typing import Any

from turnwise.errors import ConfigurationError

PRIVATE = {"MLFLOW_DISABLE_TELEMETRY": "true", "DO_NOT_TRACK": "true"}
"""Environment variables that turn telemetry off. MLflow accepts only the word `true`, and reads them when imported."""

PARENT = "mlflow.parentRunId"
"""The tag by which MLflow nests a run under another."""


@cache  # setting a logger's level empties the caches of all loggers, which took longer than writing an iteration
def mlflow() -> ModuleType:
    """The `mlflow` module, imported at the first call, with telemetry off and a log of warnings only.

    `MLFLOW_LOGGING_LEVEL`, where set, still decides how much MLflow logs.
    """
    os.environ.update(PRIVATE)
    os.environ.setdefault("MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT", "true")
    os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
    import mlflow
    import mlflow.tracing.client

    level = os.environ.get("MLFLOW_LOGGING_LEVEL", "WARNING").upper()
    # A new database is migrated on first use, and MLflow and Alembic would log every step.
    for name in ("mlflow", "alembic"):
        logging.getLogger(name).setLevel(level)
    if "MLFLOW_LOGGING_LEVEL" not in os.environ:
        # It logs a traceback of each call that a database does not answer, also of those that are repeated.
        logging.getLogger("mlflow.store.db.utils").setLevel(logging.CRITICAL)
    return mlflow


def every_page(search: Callable[..., Any]) -> Iterator[Any]:
    """All that a search of MLflow's client finds, page by page; `search` takes the token of a page by name."""
    token = None
    while True:
        page = search(page_token=token)
        yield from page
        token = page.token
        if not token:
            return


def ui_command(tracking_uri: str, port: int) -> list[str]:
    """The command that serves the MLflow UI of a database on http://127.0.0.1:`port`, with telemetry off.

    The server accepts only requests to 127.0.0.1 and localhost. MLflow's default would also accept a host such as
    `10.example.org`, which an attacker can point at this machine (DNS rebinding). Pages of other origins may change
    nothing, as is MLflow's default.

    Raises ConfigurationError for a tracking server, which serves its own UI.
    """
    if tracking_uri.startswith(("http://", "https://")):
        raise ConfigurationError(
            "the tracking URI must be a database to start a UI for; found that of a server: open it in a browser",
            "TW-tracking-server",
        )
    environment = [f"{name}={value}" for name, value in PRIVATE.items()]
    # The job runner, which serves MLflow's own LLM judges, would take 240 MB of memory.
    environment.append("MLFLOW_SERVER_ENABLE_JOB_EXECUTION=false")
    # Its own deprecations, and a line for each request, would push the address out of sight.
    environment.append("PYTHONWARNINGS=ignore")
    server = [sys.executable, "-m", "mlflow", "ui", "--backend-store-uri", tracking_uri]
    server += ["--registry-store-uri", tracking_uri, "--uvicorn-opts", "--log-level warning"]
    server += ["--allowed-hosts", f"127.0.0.1:{port},localhost:{port}"]
    server += ["--cors-allowed-origins", f"http://127.0.0.1:{port},http://localhost:{port}"]
    return ["env", *environment, *server, "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
