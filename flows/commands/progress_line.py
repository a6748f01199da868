"""How far a command is that is no run of stages, in one line."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from turnwise import progress

SHOWN_AFTER_SECONDS = 1.0
SECONDS_BETWEEN_LINES = 10.0
"""In a log, where there is no terminal."""


@contextmanager
def showing_progress(what: str = "") -> Iterator[None]:
    """Show on stderr how far the work within the block is, as it reports it, if it takes more than a moment.

    `what` says what it does until it reports, or all along.
    On a terminal it is one line that is gone at the end, with the time that is left; in a log, a line now and then.
    """
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True, highlight=False, soft_wrap=True)
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=12),
        TextColumn("{task.fields[note]}"),
    )
    # stdout and stderr are left alone: a check watches what is printed, and puts back what it has found.
    bars = Progress(
        *columns, TimeElapsedColumn(), console=console, transient=True, redirect_stdout=False, redirect_stderr=False
    )
    bar = bars.add_task(what, total=None, note="")
    starts: dict[str, tuple[float, int]] = {}
    last_line = time.monotonic()

    def show(report: progress.Progress) -> None:
        nonlocal last_line
        now = time.monotonic()
        since, first = starts.setdefault(report.what, (now, report.done))
        note = f"{report.done} of {report.total}" if report.total else ""
        if report.done > first:
            note += f", about {(now - since) / (report.done - first) * (report.total - report.done):.0f} s left"
        bars.update(bar, description=report.what, completed=report.done, total=report.total or None, note=note)
        if not console.is_terminal and now - last_line >= SECONDS_BETWEEN_LINES:
            last_line = now
            console.print(f"{report.what}  {note}".rstrip(), markup=False)

    starting = threading.Timer(SHOWN_AFTER_SECONDS, bars.start)
    if console.is_terminal:
        starting.start()
    try:
        with progress.listening(show):
            yield
    finally:
        if console.is_terminal:
            starting.cancel()
            starting.join()
            bars.stop()
