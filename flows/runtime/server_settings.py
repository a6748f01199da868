"""Settings of the local Prefect server and its clients. Nothing here imports Prefect."""

from __future__ import annotations

import os

CLIENT_SETTINGS = {
    "DO_NOT_TRACK": "true",
    "PREFECT_INTERNAL_LOGGING_LEVEL": "CRITICAL",
    "PREFECT_CLIENT_RETRY_EXTRA_CODES": "500",
    "PREFECT_LOGGING_LEVEL": "WARNING",
    "PREFECT_LOGGING_TO_API_WHEN_MISSING_FLOW": "ignore",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
}
"""Settings of a client of any server; the user's environment takes precedence.

500 is what Prefect's server answers while its database is restarted: the client asks again for a minute, as it does by
itself after 503. The internal loggers would print each event that a lost server did not take.
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
