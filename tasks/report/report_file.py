"""The file of a report artifact."""

from __future__ import annotations

from turnwise.results import report_data
from turnwise.store import Reference, default_store

DATA_FILE = "report.json"


def read_report(reference: Reference) -> report_data.ReportData:
    """The report data of a report artifact."""
    return report_data.ReportData.from_json((default_store().folder(reference) / DATA_FILE).read_text(encoding="utf-8"))
