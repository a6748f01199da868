"""The command that judges results of other systems.

turnwise judge scores.csv                                     columns method, seed, task and score, or their like
turnwise judge runs/*/trainer_state.json --score eval_reward  a log per run; method and seed are read off its path
turnwise judge logs/*.eval                                    Inspect's logs: models compared over samples
turnwise judge http://localhost:5000#experiment --to judged   MLflow's runs; the page and its figures in a folder
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from turnwise.errors import ConfigurationError


def judge(
    sources: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE...", help=".csv, .jsonl, .json, .eval; or MLflow's URI#experiment.", show_default=False
        ),
    ],
    method: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="The method that made a score.", show_default="detected")
    ] = None,
    seed: Annotated[str | None, typer.Option(metavar="COLUMN", help="Its seed.", show_default="detected")] = None,
    task: Annotated[str | None, typer.Option(metavar="COLUMN", help="Its task.", show_default="detected")] = None,
    score: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="The score; higher is better.", show_default="detected")
    ] = None,
    step: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="In logs: the last of each run counts.", show_default="detected"),
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN=VALUE", help="Only rows with this value; may be repeated.", show_default=False),
    ] = None,
    anyway: Annotated[bool, typer.Option("--anyway", help="Compare even where runs lack tasks.")] = False,
    to: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Write page, tables and figures.", show_default=False)
    ] = None,
) -> None:
    """Judge results of other systems, with an ablation's verdicts."""
    from rich.console import Console

    import turnwise as tw
    from turnwise.reporting.finding import report_finding
    from turnwise.reporting.terminal.tables import print_table
    from turnwise.reporting.terminal.verdicts import tables

    wanted = dict(each.split("=", 1) for each in only or [] if "=" in each)
    if len(wanted) < len(only or []):
        raise ConfigurationError(f"--only must be COLUMN=VALUE, each column once; found {' '.join(only or [])}")
    judged = tw.judge(
        sources, method=method, seed=seed, task=task, score=score, step=step, only=wanted, anyway=anyway, to=to
    )
    console, report = Console(highlight=False), judged.data
    assert report.judgement is not None, "scores are always judged"
    console.print(report_finding(report), style="bold", markup=False)
    for note in [report.description, *report.notes]:
        console.print(note, markup=False)
    console.print()
    for table in tables(report.judgement, where=""):
        print_table(table, console)
    if to is not None:
        console.print(f"{judged.page}", soft_wrap=True, markup=False)
