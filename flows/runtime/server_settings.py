"""Settings of the local Prefect server and its clients. Nothing here imports Prefect."""

from __future__ import annotations

CLIENT_SETTINGS = {
    "DO_NOT_TRACK": "true",
    "PREFECT_LOGGING_LEVEL": "WARNING",
    "PREFECT_LOGGING_TO_API_WHEN_MISSING_FLOW": "ignore",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
}
"""Settings of a client of any server; the user's environment takes precedence."""

UNNEEDED_SERVICES = (
    "CANCELLATION_CLEANUP",
    "FOREMAN",
    "LATE_RUNS",
    "PAUSE_EXPIRATIONS",
    "REPOSSESSOR",
    "SCHEDULER",
    "TRIGGERS",
)
"""Services for deployments and automations, which need a server of their own (`prefect server start`)."""

KEPT_DAYS = 30
"""Days for which Prefect lists a finished run. Results stay cached: they are found by key, not by run."""

REMOVAL_OF_OLD_RUNS = {
    "PREFECT_SERVER_SERVICES_DB_VACUUM_ENABLED": "events,flow_runs",
    "PREFECT_SERVER_SERVICES_DB_VACUUM_RETENTION_PERIOD": str(KEPT_DAYS * 24 * 3600),
}
"""Prefect's own clean-up service, at the server's start and every hour. The environment takes precedence."""

BATCHED_RECORDS = {
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_BATCH_SIZE": "100",
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_FLUSH_INTERVAL": "1",
}
"""Write task states once a second. Prefect's default, one at a time, takes a tenth of a core."""
