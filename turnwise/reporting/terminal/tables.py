"""Small tables in the terminal."""

from __future__ import annotations

import re

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from turnwise.reporting.data.tables import TextTable
from turnwise.reporting.formatting import UNDEFINED


def plain_table(gap: int = 1, *, show_footer: bool = False) -> Table:
    """An empty table of the terminal: no lines but one below its heads, and so many spaces between columns."""
    return Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, gap, 0, 0), show_footer=show_footer)


def stacked(cell: str) -> Text:
    """`0.56 (0.40–0.72)` on two lines, the interval dim and without leading zeros: room for one or two more columns."""
    value, _, within = cell.partition(" (")
    text = Text(value)
    if within:
        text.append("\n" + re.sub(r"\b0\.", ".", within.removesuffix(")")), style="dim")
    return text


def print_table(content: TextTable, console: Console) -> None:
    """Print the table, no wider than the console; cells are wrapped. Columns without a value are left out."""
    table = plain_table()
    kept = [place for place in range(len(content.columns)) if any(row[place] != UNDEFINED for row in content.rows)]
    for place in kept:
        table.add_column(
            Text(content.columns[place]), justify="right" if place else "left", vertical="top", overflow="fold"
        )
    for row in content.rows:
        table.add_row(*(Text(row[place]) for place in kept))
    console.print(Text(content.title, style="bold"))
    console.print(table)
    for note in content.notes:
        console.print(Text(note, style="dim"))
    console.print()
