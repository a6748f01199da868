"""Sheets: small tables of text that are shown in the terminal, or written as CSV, as they are."""

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
    """One table: the first column names the row."""

    name: str
    """A word, which also names its file."""
    title: str
    columns: list[str]
    rows: list[list[str]]
    """One text per column. Within a cell lines may be broken; a CSV file has them on one line."""
    notes: list[str] = field(default_factory=list)


def print_sheet(sheet: Sheet, console: Console) -> None:
    """Print the sheet no wider than the console: cells are wrapped at spaces."""
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
    """The sheet with its columns' names, as CSV."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(sheet.columns)
    writer.writerows([" ".join(cell.split()) for cell in row] for row in sheet.rows)
    return text.getvalue()
