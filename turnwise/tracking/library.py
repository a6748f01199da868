"""MLflow itself: imported late, quiet, and silent towards its makers; and the command that starts its UI."""

from __future__ import annotations

import logging
import os
import sys
from types import ModuleType

from turnwise.errors import ConfigurationError

PRIVATE = {"MLFLOW_DISABLE_TELEMETRY": "true", "DO_NOT_TRACK": "true"}
"""Telemetry off. MLflow takes only the word `true`, and reads it when it is imported."""

PARENT = "mlflow.parentRunId"
"""The tag by which MLflow nests a run under another."""


def mlflow() -> ModuleType:
    """The MLflow library, imported at the first call, with telemetry off and nothing but warnings on the terminal.

    `MLFLOW_LOGGING_LEVEL`, where the user has set it, still decides how much MLflow says.
    """
    os.environ.update(PRIVATE)
    os.environ.setdefault("MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT", "true")
    os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
    import mlflow
    import mlflow.tracing.client

    level = os.environ.get("MLFLOW_LOGGING_LEVEL", "WARNING").upper()
    # A new database is migrated on first use, which MLflow and Alembic report line by line.
    for name in ("mlflow", "alembic"):
        logging.getLogger(name).setLevel(level)
    return mlflow


def ui_command(tracking_uri: str, port: int) -> list[str]:
    """The command that serves the MLflow UI of a database on http://127.0.0.1:`port`, with telemetry off.

    It answers to this machine's names only. MLflow itself would also take a host such as `10.example.org`, which an
    attacker can point at this machine. Pages of another machine may change nothing, as MLflow has it.

    Raises ConfigurationError for a tracking server, which serves its own UI.
    """
    if tracking_uri.startswith(("http://", "https://")):
        raise ConfigurationError(
            f"the tracking URI must name a database to start a UI for; {tracking_uri} is a server: open it in a browser"
        )
    environment = [f"{name}={value}" for name, value in PRIVATE.items()]
    # Without its job runner, which serves MLflow's own judges, the server is 240 MB smaller.
    environment.append("MLFLOW_SERVER_ENABLE_JOB_EXECUTION=false")
    server = [sys.executable, "-m", "mlflow", "ui", "--backend-store-uri", tracking_uri]
    server += ["--allowed-hosts", f"127.0.0.1:{port},localhost:{port}"]
    server += ["--cors-allowed-origins", f"http://127.0.0.1:{port},http://localhost:{port}"]
    return ["env", *environment, *server, "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
