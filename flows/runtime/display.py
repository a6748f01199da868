"""The progress display: the current stage, its progress, the estimated time left, and the success in training so far.

On a terminal it is bars that stay in place, with one more for each worker; in a log, a line after a stage
if it was long or the last line is some time ago.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TaskProgressColumn, TimeElapsedColumn
from rich.table import Column
from rich.text import Text

from flows import roster
from tasks.observing import Observer, StageCall, observing
from turnwise import progress
from turnwise.experiment import Experiment
from turnwise.store import Reference, default_store

SECONDS_BETWEEN_LINES = 10.0
EXPECTED_SECONDS = {
    "task_set": 1.0,
    "demonstrations": 8.0,
    "tokenizer": 4.0,
    "initial_policy": 2.0,
    "warm_start": 100.0,
    "baseline": 2.0,
    "initial_critic": 0.5,
    "report": 5.0,
    "pretraining": 400.0,
}
"""Rough seconds on two cores of the stages outside iterations; those of an iteration are in `flows.roster`."""


def expected_seconds(stage: str) -> float:
    """The rough seconds of a stage; they weight the stages in the estimate of the work done and left."""
    of_iterations = {each.stage.name: each.seconds for each in roster.ROSTER}
    return of_iterations.get(stage, EXPECTED_SECONDS.get(stage, 1.0))


def expected_work(experiment: Experiment) -> float:
    """The sum of the expected seconds of all stages of an ablation."""
    once = [*["task_set"] * 3, "demonstrations", "tokenizer", "initial_policy", "warm_start", "evaluate", "report"]
    once += ["baseline"] * len(experiment.made_world.baselines)
    of_runs = 0.0
    for variant in experiment.ablation.variants:
        of_iterations = sum(stage.seconds for stage in roster.due_in_run(experiment.variant(variant)))
        of_runs += of_iterations + 2 * expected_seconds("evaluate")  # and before and after training
    return len(experiment.ablation.seeds) * of_runs + sum(map(expected_seconds, once))


class GivingWay(ProgressColumn):
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
        GivingWay("description"),
        BarColumn(bar_width=8, table_column=Column(no_wrap=True)),
        TaskProgressColumn(),
        GivingWay("note"),
        TimeElapsedColumn(table_column=Column(no_wrap=True)),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )


class Display(Observer):
    """Shows stages and their progress; counts computed and cached stages."""

    def __init__(self, console: Console, work: float, processes: int = 1) -> None:
        """`work`: see `expected_work`. It is shared by `processes`; the others report through `finished_by_worker`."""
        self.computed = 0
        self.found = 0
        self.computed_seconds = 0.0
        self.made: set[Reference] = set()
        """All artifacts that were computed now, even if they had been computed before."""
        self._console, self._work, self._processes = console, work, processes
        self._by_workers: set[tuple[str, str]] = set()
        self._views: dict[str, WorkerView] = {}
        self._lock = threading.Lock()
        self._done = self._done_by_computing = 0.0
        self._success: float | None = None
        self._began = self._last_line = time.monotonic()
        self._bars = bars(console)
        self._all = self._bars.add_task("everything", total=work, note="")
        self._now = self._bars.add_task("starting", total=None, note="")

    @contextmanager
    def showing(self) -> Iterator[Display]:
        """Show the display while the block runs."""
        with self._bars, observing(self), progress.listening(self._progressed):
            yield self

    def started(self, stage: str, label: str) -> None:
        """Show that a stage has started."""
        self._bars.reset(self._now, total=None, description=_title(stage, label), note="")

    def finished(self, call: StageCall) -> None:
        """Count a finished stage, computed or cached, unless a worker process has already reported it."""
        with self._lock:
            if (call.stage, call.label) not in self._by_workers:
                self._count(call)

    def worker(self, name: str) -> WorkerView:
        """The line of a worker, by the worker's name."""
        with self._lock:
            if name not in self._views:
                self._views[name] = WorkerView(self, name)
            return self._views[name]

    def finished_by_worker(self, call: StageCall) -> None:
        """Count a stage that a worker has finished; one that is reported twice, as after a loss, counts once."""
        with self._lock:
            if (call.stage, call.label) not in self._by_workers:
                self._by_workers.add((call.stage, call.label))
                self._count(call)

    def _count(self, call: StageCall) -> None:
        cost = expected_seconds(call.stage)
        self._done += cost
        if call.cached:
            self.found += 1
        else:
            self.computed += 1
            self.computed_seconds += call.seconds
            self.made.add(call.reference)
            self._done_by_computing += cost
        if call.stage == "rollout":
            self._success = default_store().metrics(call.reference).get("success")
        self._bars.update(self._all, completed=min(self._done, self._work), note=self._left())
        long = call.seconds >= SECONDS_BETWEEN_LINES
        if not self._console.is_terminal and (long or time.monotonic() - self._last_line >= SECONDS_BETWEEN_LINES):
            self._last_line = time.monotonic()
            share = min(1.0, self._done / self._work)
            self._console.print(f"{share:4.0%}  {_title(call.stage, call.label)}  {self._left()}", highlight=False)

    def _progressed(self, told: progress.Progress) -> None:
        self._bars.update(self._now, total=told.total, completed=told.done, note=_note(told))
        self._tell(_note(told))

    def _tell(self, line: str) -> None:
        """In a log, a line on the stage that is being computed, unless the last line was just now."""
        with self._lock:
            if not self._console.is_terminal and time.monotonic() - self._last_line >= SECONDS_BETWEEN_LINES:
                self._last_line = time.monotonic()
                self._console.print(f"      {line}", highlight=False)

    def _left(self) -> str:
        """Estimated seconds left at the pace of the computed stages so far, and the success in training."""
        success = "" if self._success is None else f"  success {self._success:.2f}"
        if not self._done_by_computing:
            return success.strip()
        pace = self.computed_seconds / self._done_by_computing / self._processes
        return f"about {max(0.0, self._work - self._done) * pace:.0f} s left{success}"


class WorkerView:
    """The line of one worker in the display: the stage that it computes now, and how far that is."""

    def __init__(self, display: Display, name: str) -> None:
        self._display, self._name = display, name
        self._bar = display._bars.add_task("", total=None, note=name, visible=False)
        self._now = ""

    def started(self, stage: str, label: str) -> None:
        """Show that the worker has begun a stage."""
        self._now = _title(stage, label)
        self._display._bars.reset(self._bar, total=None, visible=True, description=self._now, note=self._name)

    def progressed(self, told: progress.Progress) -> None:
        """Show how far the worker's stage is."""
        note = f"{self._name}  {_note(told)}"
        self._display._bars.update(self._bar, total=told.total, completed=told.done, note=note)
        self._display._tell(f"{self._now}  {_note(told)}")

    def finished(self, call: StageCall) -> None:
        """Count a stage of the worker."""
        self._display.finished_by_worker(call)

    def rest(self) -> None:
        """The worker has nothing to do: its line is hidden."""
        self._display._bars.update(self._bar, visible=False)


def _title(stage: str, label: str) -> str:
    return stage if label == stage else f"{label}: {stage}"


def _note(told: progress.Progress) -> str:
    figures = "  ".join(f"{name} {value:.2f}" for name, value in told.figures.items())
    return f"{told.what} {told.done} of {told.total}  {figures}"
