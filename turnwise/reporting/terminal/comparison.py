"""The comparison in the terminal: the table, the basis of its intervals, verdicts, and the time account."""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from turnwise.reporting.finding import report_finding
from turnwise.reporting.formatting import (
    UNDEFINED,
    basis,
    budget_sentences,
    compact,
    comparison_sentence,
    duration,
    ended_line,
    heading,
    process_note,
    race_sentences,
)
from turnwise.reporting.terminal.tables import plain_table, stacked
from turnwise.results.report_data import ReportColumn, ReportData, Row


def print_report(report: ReportData, console: Console) -> None:
    """Print what was found, and the comparison of the variants.

    Columns that do not fit next to each other go into further tables below.
    """
    if headline := report_finding(report):
        console.print(Text(headline, style="bold"))
        console.print()
    console.print(Text(report.title, style="bold"))
    for columns in _groups_that_fit(report, console):
        console.print()
        console.print(_table(report, columns))
    console.print()
    for line in basis(report):
        console.print(Text(line, style="dim"))
    for row in report.rows:
        if row.note:
            console.print(Text(f"{row.name}: {row.note}", style="dim"))
    for judgement in (report.judgement, report.greedy):
        if report.judgement is not None and judgement is not None:
            _print_sentences(judgement.measure, map(comparison_sentence, judgement.comparisons), console)
    if report.costs is not None and report.costs.at_budget is not None:
        sentences = budget_sentences(report.costs.at_budget)
        _print_sentences("On the validation task set, at the budget", sentences, console)
    if report.race is not None:
        _print_sentences("Seeds", race_sentences(report.race), console)
    if report.seconds:
        console.print()
        for line in _time_account(report, console.width):
            console.print(Text(line), no_wrap=True)
    if report.outcomes is not None and report.outcomes.ended:
        console.print()
        for run in report.outcomes.ended:
            console.print(Text(ended_line(run)))
    for note in report.notes:
        console.print(Text(f"Note: {note}"))


def _print_sentences(title: str, sentences: Iterable[str], console: Console) -> None:
    console.print()
    console.print(Text(title, style="bold"))
    for sentence in sentences:
        console.print(Text(sentence))


def _groups_that_fit(report: ReportData, console: Console) -> Sequence[Sequence[ReportColumn]]:
    """The columns in as few groups of nearly equal size as fit the console's width; at worst one column per group."""
    total = len(report.columns)
    wide_options = console.options.update(width=10_000)
    for count in range(1, total + 1):
        edges = [round(total * part / count) for part in range(count + 1)]
        groups = [report.columns[low:high] for low, high in itertools.pairwise(edges)]
        widths = [console.measure(_table(report, group), options=wide_options).maximum for group in groups]
        if max(widths) <= console.width:
            return groups
    return [[column] for column in report.columns]


def _table(report: ReportData, columns: Sequence[ReportColumn]) -> Table:
    table = plain_table()
    table.add_column("", no_wrap=True)
    for column in columns:
        table.add_column(_wrapped_heading(report, column), justify="right", vertical="top", no_wrap=True)
    for rows in report.row_groups():
        for row in rows:
            table.add_row(_name(report, row), *(_cell(row, column) for column in columns))
        table.add_section()
    return table


def _name(report: ReportData, row: Row) -> Text:
    """The name of a row; beneath that of a variant, how many of its runs were ended or left out."""
    mark = report.mark(row)
    return Text.assemble(row.name, (f"\n{mark}", "dim")) if mark else Text(row.name)


def _wrapped_heading(report: ReportData, column: ReportColumn) -> Text:
    words = heading(column).split()
    cells = [_cell(row, column).plain.splitlines() for row in report.rows]
    width = max(len(part) for part in [*words, *(line for cell in cells for line in cell)])
    return Text("\n".join(textwrap.wrap(" ".join(words), width)), style="bold")


def _cell(row: Row, column: ReportColumn) -> Text:
    interval = row.cells.get(column.key)
    if interval is None:
        return Text(UNDEFINED, style="dim")
    return stacked(compact(interval, column.digits))


def _time_account(report: ReportData, width: int) -> list[str]:
    account = report.account()
    parts = [("total", sum(seconds for _, seconds in account)), *account]
    # No-break spaces, at which textwrap does not break, keep "2 min 31 s" on one line.
    phrases = [f"{stage} {duration(seconds)}".replace(" ", "\u00a0") for stage, seconds in parts]
    text = f"Time{process_note(report)}: " + ", ".join(phrases)
    return [line.replace("\u00a0", " ") for line in textwrap.wrap(text, width, subsequent_indent="      ")]
