"""The command that compares rules over several worlds, by what is recorded.

turnwise suite                                     every rule in every world that is recorded
turnwise suite lakes search --rule grpo --rule rloo    two rules, by the runs of two ablations
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from flows.commands.options import Tracking


def suite(
    runs: Annotated[
        list[str] | None,
        typer.Argument(metavar="RUN", help="Id, name or tag of ablations or runs.", show_default="all recorded"),
    ] = None,
    rules: Annotated[
        list[str] | None,
        typer.Option("--rule", metavar="VARIANT", help="Only this; may be repeated.", show_default="all"),
    ] = None,
    worlds: Annotated[
        list[str] | None,
        typer.Option("--world", metavar="WORLD", help="Only this; may be repeated.", show_default="all"),
    ] = None,
    to: Annotated[Path, typer.Option("--to", metavar="FOLDER", help="Where page, figure and data go.")] = Path(
        "results/suite"
    ),
    tracking: Tracking = None,
) -> None:
    """Compare rules over worlds: interquartile means, ranks, profiles."""
    from rich.console import Console

    from turnwise.reporting.data.suites import collect_suite
    from turnwise.reporting.html.suite_page import PAGE_FILE, write_suite
    from turnwise.reporting.terminal.suite import suite_tables
    from turnwise.reporting.terminal.tables import print_table
    from turnwise.tracking.finding import find_all_runs
    from turnwise.training_runs.record import recorded_here, recorded_store

    uri, console = recorded_store(tracking), Console(highlight=False)
    found = [run for each in runs for run in recorded_here(uri, each)] if runs else find_all_runs(uri)
    report = collect_suite(found, rules or (), worlds or ())
    console.print(f"{report.headline}.", style="bold", markup=False)
    console.print()
    for table in suite_tables(report):
        print_table(table, console)
    for each in report.missing:
        console.print(f"Missing: {each}", markup=False, soft_wrap=True)
    write_suite(report, to)
    console.print(f"page  {to / PAGE_FILE}", markup=False, soft_wrap=True)
