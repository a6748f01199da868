"""Small tables of text, printed in the terminal or written as CSV."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass, field

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text


@dataclass(frozen=True)
class TextTable:
    """A table of text; the first column is the row's name."""

    name: str
    """One word, also the name of its file."""
    title: str
    columns: list[str]
    rows: list[list[str]]
    """One text per column. A cell may have several lines, which `as_csv` joins into one."""
    notes: list[str] = field(default_factory=list)


def print_table(content: TextTable, console: Console) -> None:
    """Print the table, no wider than the console; cells are wrapped."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    for place, column in enumerate(content.columns):
        table.add_column(Text(column), justify="right" if place else "left", vertical="top", overflow="fold")
    for row in content.rows:
        table.add_row(*(Text(cell) for cell in row))
    console.print(Text(content.title, style="bold"))
    console.print(table)
    for note in content.notes:
        console.print(Text(note, style="dim"))
    console.print()


def as_csv(content: TextTable) -> str:
    """The table as CSV text, with a header line and without title and notes."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(content.columns)
    writer.writerows([" ".join(cell.split()) for cell in row] for row in content.rows)
    return text.getvalue()
