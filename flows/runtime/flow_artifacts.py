"""Prefect artifacts of an ablation: how far it is, its table, and where its report and its runs in MLflow are.

They are shown on the page of the flow run, and under *Artifacts* by key, with every earlier version. Outside of a flow
run, where everything was found in the store, there are none, and Prefect is not imported.
"""

from __future__ import annotations

import contextvars
import re
import threading
import time
from pathlib import Path
from urllib.parse import urlsplit
from uuid import UUID

from flows.runtime.flow_runs import in_flow_run
from turnwise.reporting.finding import report_finding
from turnwise.reporting.markdown import results_table
from turnwise.results.report_data import ReportData
from turnwise.tracking.database import place_of

SECONDS_BETWEEN_WRITES = 5.0
TABLE_COLUMNS = 4
"""Columns of the table that the artifact has: more do not fit its page."""


class FlowProgress:
    """Writes the share of an ablation's work that is done as a progress artifact, every few seconds at most.

    It belongs to the flow run in which it is made, whichever thread learns of the progress.
    """

    def __init__(self, name: str) -> None:
        self._key = artifact_key("progress", name)
        self._context = contextvars.copy_context()
        self._lock = threading.Lock()
        self._id: UUID | None = None
        self._last_write: float | None = None

    def reached(self, share: float) -> None:
        """Write the share of the work that is done, from 0 to 1, unless one was written just now."""
        with self._lock:
            if self._last_write is None or time.monotonic() - self._last_write >= SECONDS_BETWEEN_WRITES:
                self._write(min(99.0, 100 * share))

    def complete(self) -> None:
        """Write that everything is done."""
        with self._lock:
            self._write(100.0)

    def _write(self, percent: float) -> None:
        if self._context.run(in_flow_run):
            self._context.run(self._publish, percent)
            self._last_write = time.monotonic()

    def _publish(self, percent: float) -> None:
        from prefect.artifacts import create_progress_artifact, update_progress_artifact

        if self._id is None:
            artifact = create_progress_artifact(progress=percent, key=self._key, description="Work done, in percent")
            assert isinstance(artifact, UUID), "called outside of an event loop, Prefect returns the id"
            self._id = artifact
        else:
            update_progress_artifact(self._id, progress=percent)


def publish_results(report: ReportData, page: Path, tracking_uri: str) -> None:
    """Write an ablation's table and a link to its report as artifacts of the flow run, if this is one."""
    if not in_flow_run():
        return
    from prefect.artifacts import create_link_artifact, create_markdown_artifact

    create_markdown_artifact(
        markdown=results_markdown(report, page, tracking_uri),
        key=artifact_key("results", report.title),
        description=f"The comparison of {report.title}",
    )
    create_link_artifact(
        link=page.absolute().as_uri(),
        link_text="report.html",
        key=artifact_key("report", report.title),
        description=f"The report of {report.title}, on the machine that wrote it",
    )


def results_markdown(report: ReportData, page: Path, tracking_uri: str) -> str:
    """The finding, the table's first columns with their intervals, and where more is."""
    lines: list[str] = [f"# {report.title}", ""]
    if finding := report_finding(report):
        lines += [finding, ""]
    lines.append(results_table(report, TABLE_COLUMNS))
    parts = urlsplit(tracking_uri)
    mlflow_address = (
        f"{parts.scheme}://{place_of(tracking_uri)}{parts.path}" if parts.scheme.startswith("http") else "`turnwise ui`"
    )
    return "\n".join([*lines, "", f"Report: `{page}`. Runs in MLflow: {mlflow_address}.", ""])


def artifact_key(what: str, name: str) -> str:
    """A key as Prefect takes it: lower-case letters, digits and dashes."""
    return re.sub(r"[^a-z0-9]+", "-", f"{what}-{name}".lower()).strip("-")
