"""The progress display: the current stage, its progress, the estimated time left, and the success in training so far.

On a terminal it is bars that stay in place, with one more for each worker. In a log it is lines, each with the run that
it is of: after a stage that was long, and about the stage that is being computed where the last line is some time ago.
No line says of a stage what another has said.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TaskProgressColumn, TimeElapsedColumn
from rich.table import Column
from rich.text import Text

from turnwise import progress
from turnwise.store import Reference, default_store
from turnwise.training_runs.observing import Observer, StageCall, observing
from turnwise.training_runs.state import GREEDILY
from turnwise.training_runs.work_left import NONE, NOTHING, Stages, WorkLeft

SECONDS_BETWEEN_LINES = 10.0
THIS_PROCESS = "this process"


class TruncatedColumn(ProgressColumn):
    """A text column that is truncated on a narrow terminal, so that bars and times are not."""

    def __init__(self, name: str) -> None:
        super().__init__(Column(no_wrap=False))
        self._name = name

    def render(self, task: Task) -> Text:
        """The column's text in one line of the display."""
        text = task.description if self._name == "description" else task.fields[self._name]
        return Text(text, no_wrap=True, overflow="ellipsis")


def bars(console: Console) -> Progress:
    """Progress bars that stay in place on a terminal and are hidden elsewhere. Their tasks have a field `note`."""
    return Progress(
        TruncatedColumn("description"),
        BarColumn(bar_width=8, table_column=Column(no_wrap=True)),
        TaskProgressColumn(),
        TruncatedColumn("note"),
        TimeElapsedColumn(table_column=Column(no_wrap=True)),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )


class Display(Observer):
    """Shows stages and their progress; counts computed and cached stages."""

    def __init__(
        self,
        console: Console,
        expected: Stages,
        processes: int = 1,
        report_share: Callable[[float], None] = lambda share: None,
        log: Callable[[str], None] = lambda line: None,
        policy_seconds: Mapping[str, float] = NOTHING,
        recorded: Stages = NONE,
    ) -> None:
        """Show the `expected` calls of stages as they return.

        They are shared by `processes`; the others report through `worker` and `finished`. `report_share` is told the
        share that is done after each of them, and `log` gets the lines of a log, both also from other threads.
        `policy_seconds` has the seconds that the policy's size adds to a call of each kind. Of the `recorded` ones
        nothing will be computed.
        """
        self.computed = 0
        self.found = 0
        self.computed_artifacts: set[Reference] = set()
        """All artifacts that were computed now, even if they had been computed before."""
        self._console, self._processes = console, processes
        self._left = WorkLeft(expected, policy_seconds, recorded)
        self._report_share, self._log = report_share, log
        self._by_workers: set[tuple[str, str]] = set()
        self._views: dict[str, WorkerView] = {}
        self._lock = threading.Lock()
        self._at_work: set[str] = set()
        self._success: float | None = None
        self._last_line = time.monotonic()
        self._title = "starting"
        self._lines: defaultdict[str, set[str]] = defaultdict(set)
        """What has been told in the log of the stage that each process computes now."""
        self._bars = bars(console)
        self._all = self._bars.add_task("everything", total=1.0, note="")
        self._now = self._bars.add_task("starting", total=None, note="")

    @contextmanager
    def showing(self) -> Iterator[Display]:
        """Show the display while the block runs."""
        with self._bars, observing(self), progress.listening(self._progressed):
            yield self

    def started(self, stage: str, label: str) -> None:
        """Show that a stage has started."""
        self._title = _title(stage, label)
        self._begin_telling(THIS_PROCESS)
        self._bars.reset(self._now, total=None, description=self._title, note="")

    def finished(self, call: StageCall, process: str = THIS_PROCESS) -> None:
        """Count a finished stage, computed or cached. One that a worker has reported, as before a loss, counts once."""
        with self._lock:
            if (call.stage, call.label) in self._by_workers:
                return
            if process != THIS_PROCESS:
                self._by_workers.add((call.stage, call.label))
            share = self._count(call, process)
        self._report_share(share)

    def expect_less(self, stages: Stages) -> None:
        """Some calls that were expected will not be made, as after an early end of a run."""
        with self._lock:
            self._left.expect_less(stages)

    def worker(self, name: str) -> WorkerView:
        """The line of a worker, by the worker's name."""
        with self._lock:
            if name not in self._views:
                self._views[name] = WorkerView(self, name)
            return self._views[name]

    def _count(self, call: StageCall, process: str) -> float:
        """Count a stage, and return the share of the work that is done."""
        now = time.monotonic()
        self._left.count(call, process, now)
        if call.cached:
            self.found += 1
        else:
            self.computed += 1
            self.computed_artifacts.add(call.reference)
        if call.stage == "rollout" and not call.label.endswith(GREEDILY):
            self._success = default_store().metrics(call.reference).get("success")
        share = self._left.share
        self._bars.update(self._all, completed=share, note=self._outlook())
        long = call.seconds >= SECONDS_BETWEEN_LINES
        if long or now - self._last_line >= SECONDS_BETWEEN_LINES:
            self._add_line(f"{share:4.0%}  {_title(call.stage, call.label)}  {self._outlook()}".rstrip())
        return share

    def _progressed(self, report: progress.Progress) -> None:
        self._bars.update(self._now, total=report.total, completed=report.done, note=_note(report))
        self._tell(THIS_PROCESS, self._title, _note(report))

    def _begin_telling(self, process: str) -> None:
        """A process begins a stage, of which nothing has been told."""
        with self._lock:
            self._lines[process].clear()

    def _tell(self, process: str, title: str, note: str) -> None:
        """In a log, a line on a stage that is being computed, if it is news and the last line was not just now."""
        with self._lock:
            if note not in self._lines[process] and time.monotonic() - self._last_line >= SECONDS_BETWEEN_LINES:
                self._lines[process].add(note)
                self._add_line(f"      {title}  {note}")

    def _add_line(self, line: str) -> None:
        self._last_line = time.monotonic()
        if not self._console.is_terminal:
            self._console.print(line, highlight=False, soft_wrap=True)
        self._log(line.strip())

    def _works(self, worker: str, at_work: bool) -> None:
        with self._lock:
            (self._at_work.add if at_work else self._at_work.discard)(worker)

    def _outlook(self) -> str:
        """Estimated time left, and the success in training."""
        left = self._left.seconds(max(self._processes, len(self._at_work)))
        about = "" if left is None else f"{left:.0f} s" if left < 100 else f"{left / 60:.0f} min"
        success = "" if self._success is None else f"success {self._success:.2f}"
        return "  ".join(filter(None, [about and f"about {about} left", success]))


class WorkerView:
    """The line of one worker in the display: the stage that it computes now, and how far that is."""

    def __init__(self, display: Display, name: str) -> None:
        self._display, self._name = display, name
        self._bar = display._bars.add_task("", total=None, note=name, visible=False)
        self._now = ""

    def started(self, stage: str, label: str) -> None:
        """Show that the worker has begun a stage."""
        self._now = _title(stage, label)
        self._display._begin_telling(self._name)
        self._display._works(self._name, True)
        self._display._bars.reset(self._bar, total=None, visible=True, description=self._now, note=self._name)

    def progressed(self, report: progress.Progress) -> None:
        """Show how far the worker's stage is."""
        note = f"{self._name}  {_note(report)}"
        self._display._bars.update(self._bar, total=report.total, completed=report.done, note=note)
        self._display._tell(self._name, self._now, _note(report))

    def finished(self, call: StageCall) -> None:
        """Count a stage of the worker."""
        self._display.finished(call, self._name)

    def rest(self) -> None:
        """The worker has nothing to do: its line is hidden."""
        self._display._works(self._name, False)
        self._display._bars.update(self._bar, visible=False)


def _title(stage: str, label: str) -> str:
    return stage if label == stage else f"{label}: {stage}"


def _note(report: progress.Progress) -> str:
    figures = "  ".join(f"{name} {value:.2f}" for name, value in report.figures.items())
    return f"{report.what} {report.done} of {report.total}  {figures}".rstrip()
