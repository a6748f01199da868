"""`turnwise verify`: checks that everything in the home is as it was written, and says how to repair what is not.

It reads every byte of the store and of the shared one (`storage.url`), whatever the store's index says, every record of
Prefect's, and has SQLite check both databases. It changes nothing and may run at the same time as anything else.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table
from rich.text import Text

from tasks.prefect_records import inspect_records
from turnwise import progress
from turnwise.errors import TurnwiseError
from turnwise.project import home
from turnwise.store import default_store
from turnwise.store.inspection import Inspected, inspect_artifacts, inspect_database, inspect_notes
from turnwise.store.place_inspection import inspect_place

LISTED = 20
"""Number of damaged things per part that are listed; further ones are only counted."""
SHOWN_AFTER_SECONDS = 2.0


def show_verification() -> None:
    """Check everything in the home, and print what is damaged and how to repair it.

    Raises:
        TurnwiseError: something is damaged.
    """
    console = Console(highlight=False)
    with _shown(console):
        parts = inspect(home())
    print_parts(parts, console)
    if number := sum(len(part.damaged) for part in parts):
        raise TurnwiseError(
            f"everything in {home()} must be as it was written; {number} damaged, as listed above with what mends it"
        )


def inspect(folder: Path) -> list[Inspected]:
    """Inspect every part of a home."""
    store = default_store()
    return [
        inspect_artifacts(store),
        *([inspect_place(store.place)] if store.place is not None else []),
        inspect_notes(store),
        inspect_records(store),
        inspect_database(
            "Prefect's database",
            folder / "prefect" / "prefect.db",
            f"when nothing runs: rm -r {folder / 'prefect'} (the list of past flow runs goes with it, no result does)",
        ),
        inspect_database(
            "MLflow's database",
            folder / "mlflow.db",
            f"mv {folder / 'mlflow.db'} elsewhere and run the experiments again: what is cached is only recorded again",
        ),
    ]


def print_parts(parts: Sequence[Inspected], console: Console) -> None:
    """Print a table of all parts, and below it what is damaged and how to repair it."""
    table = Table(box=None, pad_edge=False)
    table.add_column("part")
    for heading in ("checked", "damaged", "left over"):
        table.add_column(heading, justify="right")
    for part in parts:
        numbers = [len(part.damaged), len(part.left_over)]
        table.add_row(part.part, str(part.checked), *(str(number) if number else "-" for number in numbers))
    console.print(table)
    for part in parts:
        if part.damaged:
            console.print(Text(f"\n{part.part}: {part.mended_by}", style="bold"))
            for sentence in part.damaged[:LISTED]:
                console.print(Text(f"* {sentence}"), soft_wrap=True)
            if (more := len(part.damaged) - LISTED) > 0:
                console.print(f"* and {more} more")
    if left := [path for part in parts for path in part.left_over]:
        folders = ", ".join(dict.fromkeys(str(path.parent) for path in left[:LISTED]))
        console.print(Text(f"\nLeft over, harmless: {len(left)} in {folders}"), soft_wrap=True)


@contextmanager
def _shown(console: Console) -> Iterator[None]:
    """Show on a terminal how far the inspection is, if it takes more than a moment."""
    columns = (TextColumn("{task.description}"), BarColumn(bar_width=20), MofNCompleteColumn())
    bars = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
    task = bars.add_task("")
    began = time.monotonic()

    def show(report: progress.Progress) -> None:
        if time.monotonic() - began > SHOWN_AFTER_SECONDS:
            bars.start()
            bars.update(task, description=report.what, completed=report.done, total=report.total)

    try:
        with progress.listening(show):
            yield
    finally:
        bars.stop()
