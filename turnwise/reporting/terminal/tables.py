"""Sheets: small tables of text, printed in the terminal or written as CSV."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass, field

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text


@dataclass(frozen=True)
class Sheet:
    """A table of text; the first column is the row's name."""

    name: str
    """One word, also the name of its file."""
    title: str
    columns: list[str]
    rows: list[list[str]]
    """One text per column. A cell may have several lines, which `as_csv` joins into one."""
    notes: list[str] = field(default_factory=list)


def print_sheet(sheet: Sheet, console: Console) -> None:
    """Print the sheet, no wider than the console; cells are wrapped."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    for place, column in enumerate(sheet.columns):
        table.add_column(Text(column), justify="right" if place else "left", vertical="top", overflow="fold")
    for row in sheet.rows:
        table.add_row(*(Text(cell) for cell in row))
    console.print(Text(sheet.title, style="bold"))
    console.print(table)
    for note in sheet.notes:
        console.print(Text(note, style="dim"))
    console.print()


def as_csv(sheet: Sheet) -> str:
    """The sheet as CSV text, with a header line and without title and notes."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(sheet.columns)
    writer.writerows([" ".join(cell.split()) for cell in row] for row in sheet.rows)
    return text.getvalue()
