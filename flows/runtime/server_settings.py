"""What the local Prefect server and its clients are set to. Nothing here imports Prefect."""

from __future__ import annotations

CLIENT_SETTINGS = {
    "DO_NOT_TRACK": "true",
    "PREFECT_LOGGING_LEVEL": "WARNING",
    "PREFECT_LOGGING_TO_API_WHEN_MISSING_FLOW": "ignore",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
}
"""What a client of any server gets, unless the user has set it otherwise."""

UNNEEDED_SERVICES = (
    "CANCELLATION_CLEANUP",
    "FOREMAN",
    "LATE_RUNS",
    "PAUSE_EXPIRATIONS",
    "REPOSSESSOR",
    "SCHEDULER",
    "TRIGGERS",
)
"""Loops that serve deployments and automations, which want a server of their own (`prefect server start`)."""

KEPT_DAYS = 30
"""For how long Prefect lists a run that has ended. Its results stay: they are found by their key, not by their run."""

REMOVAL_OF_OLD_RUNS = {
    "PREFECT_SERVER_SERVICES_DB_VACUUM_ENABLED": "events,flow_runs",
    "PREFECT_SERVER_SERVICES_DB_VACUUM_RETENTION_PERIOD": str(KEPT_DAYS * 24 * 3600),
}
"""Prefect's own service, which looks when the server starts and every hour. The environment may say otherwise."""

BATCHED_RECORDS = {
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_BATCH_SIZE": "100",
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_FLUSH_INTERVAL": "1",
}
"""The states of tasks are written down once a second. One at a time, as is usual, it takes a tenth of a core."""
