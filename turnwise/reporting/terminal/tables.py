"""Small tables in the terminal."""

from __future__ import annotations

import re

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from turnwise.reporting.data.tables import TextTable


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
    table, text_table = plain_table(), content.with_values()
    for place, heading in enumerate(text_table.columns):
        table.add_column(Text(heading), justify="right" if place else "left", vertical="top", overflow="fold")
    for row in text_table.rows:
        table.add_row(*map(Text, row))
    console.print(Text(content.title, style="bold"))
    console.print(table)
    for note in content.notes:
        console.print(Text(note, style="dim"))
    console.print()
