"""The page of `turnwise suite`: rules in worlds, their measures over all of them, one figure, and what is missing."""

from __future__ import annotations

from pathlib import Path

from turnwise.reporting.data.suites import SuiteReport
from turnwise.reporting.data.tables import as_csv
from turnwise.reporting.figures.suite import suite_figure, suite_styles
from turnwise.reporting.html.rendering import render
from turnwise.store.atomic_write import write_whole

PAGE_FILE = "suite.html"


def write_suite(report: SuiteReport, folder: Path) -> None:
    """Write the page, its data, and its figure with the figure's data into a folder, which is made if need be."""
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / PAGE_FILE, suite_page(report))
    write_whole(folder / "suite.json", report.to_json())
    if report.suite is not None:
        figure = suite_figure(report.suite)
        write_whole(folder / "suite.png", figure.png())
        write_whole(folder / "suite.csv", as_csv(figure.header, figure.data))


def suite_page(report: SuiteReport) -> str:
    """The page as HTML text."""
    return render(
        "suite.html.jinja",
        title=report.headline,
        report=report,
        figure=None if report.suite is None else suite_figure(report.suite),
        styles=suite_styles(report.rules),
    )
