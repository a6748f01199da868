"""Worker processes of this machine: each makes the runs that it is asked for, one after the other, and reports on them.

    this process                              a worker: a `turnwise.child_process`
    Prefect's task "run", in a thread of      a flow run for each order, within that of the ablation,
    Prefect's ThreadPoolTaskRunner            whose stages are cached as those of any process
        order                         ->
                                      <-      reports
        a lost worker: Prefect's retry of the task, which starts another worker and gives it the order again

Why not Prefect's `ProcessPoolTaskRunner` (3.7.7)? A worker costs the same to start, 10.8 processor seconds for 10.7
here on two busy cores, nearly all of it imports. But there

* one lost worker breaks the pool: with one of two workers killed, all four waiting tasks ended in `BrokenProcessPool`;
* a worker outlives a main process that is killed alone: it was still there when measured, 5 s after the SIGKILL;
* the main process does not learn how far a worker is: the pool reports Prefect's events and logs alone.

Of `prefect.flow_engine.run_flow_in_subprocess` the last two hold too. So the task runner is Prefect's for threads,
and each thread talks to a process.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from typing import Any

from prefect import Task
from prefect.cache_policies import NO_CACHE
from prefect.context import TagsContext
from prefect.futures import PrefectConcurrentFuture
from prefect.task_runners import ThreadPoolTaskRunner

from flows.runtime.housekeeping import computing_for_another
from flows.runtime.sampler import sampling_ahead
from flows.workers.runs import FollowedRun, RunOrder, run_recorded, run_reporter
from turnwise.child_process import ChildLost, ChildProcess, ParentProcess, failure_message
from turnwise.errors import TrainingEnded, TurnwiseError
from turnwise.training_runs.display import Display, WorkerView

LOSSES_OF_A_RUN = 3
"""How often a run is given to a further worker when its own is lost. After that, this process makes it."""


class WorkerLost(TurnwiseError):
    """A worker was killed while it made a run."""


class WorkerFailed(TurnwiseError):
    """A worker has ended with an error of its own, which another one would repeat."""


class WorkerProcess:
    """A place for a worker process, which is started when the place is given a run, and again after a loss."""

    def __init__(self, view: WorkerView, samples_ahead: bool) -> None:
        self.seconds = 0.0
        """Wall time of its processes in seconds, added up."""
        self._view, self._samples_ahead = view, samples_ahead
        self._child: ChildProcess | None = None
        self._killed = False
        self._began = 0.0

    def make(self, followed: FollowedRun) -> None:
        """Have a run made, and follow it.

        Raises WorkerLost or WorkerFailed, what the worker has raised on purpose, and whatever recording it raises.
        """
        if self._child is None:
            self._began = time.monotonic()
            self._child = ChildProcess("flows.workers.processes", self._samples_ahead)
        child = self._child
        if self._killed:
            child.kill()
        try:
            child.ask(followed.order, lambda report: followed.heard(report, self._view))
        except BaseException as error:
            child.discard()
            self._close()
            if isinstance(error, TurnwiseError) or not isinstance(error, Exception):
                raise
            if followed.outcome is None:
                raise _failure(error, followed.order.name) from error
        self._view.rest()

    def finish(self) -> None:
        """Let the process end, which has nothing to do."""
        if self._child is not None:
            self._child.finish()
            self._close()

    def kill(self) -> None:
        """End the process at once."""
        self._killed = True
        if (child := self._child) is not None:
            child.kill()

    def _close(self) -> None:
        self.seconds += time.monotonic() - self._began
        self._child = None
        self._view.rest()


def _failure(error: Exception, run: str) -> WorkerLost | WorkerFailed:
    is_lost = isinstance(error, ChildLost) and error.status < 0
    handling = "given to another one" if is_lost else "computed here"
    message = failure_message("a worker process", error, f"what it left undone of {run} is {handling}")
    return WorkerLost(message, "TW-worker-lost") if is_lost else WorkerFailed(message, "TW-worker-lost")


class ProcessWorkers:
    """The worker processes of an ablation, behind Prefect's task runner. Started as runs are given to them."""

    def __init__(self, number: int, samplers: int, display: Display, warn: Callable[[str], None]) -> None:
        """`samplers` of the `number` workers have a process that samples ahead for them (`rollout.lag`)."""
        self._places = [
            WorkerProcess(display.worker(f"worker {place + 2}"), place < samplers) for place in range(number)
        ]
        self._idle = list(reversed(self._places))
        self._warn = warn
        self._ending = False
        self._open = ExitStack()
        self._runner: ThreadPoolTaskRunner[Any] | None = None
        self._lock = threading.Lock()
        self._futures: dict[str, PrefectConcurrentFuture[None]] = {}
        """By the name of the run."""

    @property
    def seconds(self) -> float:
        """Wall time of the workers in seconds, added up."""
        return sum(place.seconds for place in self._places)

    @property
    def number(self) -> int:
        """How many workers there have been."""
        return sum(place.seconds > 0 for place in self._places)

    def submit(self, followed: FollowedRun) -> None:
        """Give a run to the next worker that is free."""
        if self._runner is None:
            self._runner = self._open.enter_context(ThreadPoolTaskRunner(max_workers=len(self._places)))
        title = followed.order.name
        with TagsContext(current_tags=set()):  # a tag costs a question to the server
            self._futures[title] = self._runner.submit(
                _TASK, parameters={"title": title, "make": partial(self._make, followed)}
            )

    def take_back(self, followed: FollowedRun) -> bool:
        """Take a run back; False if a worker has begun it."""
        return self._futures[followed.order.name].wrapped_future.cancel()

    def wait(self, followed: FollowedRun) -> None:
        """Wait until a worker has made a run, or has failed to."""
        self._futures[followed.order.name].wait()

    def finish(self) -> None:
        """End the workers, which have nothing to do."""
        for place in self._places:
            place.finish()
        self._open.close()

    def kill(self) -> None:
        """End the workers at once, whatever they do."""
        self._ending = True
        for place in self._places:
            place.kill()
        self._open.close()

    def _make(self, followed: FollowedRun) -> None:
        with self._lock:
            place = self._idle.pop()
        try:
            place.make(followed)
        except (WorkerLost, WorkerFailed) as error:
            if self._ending:
                raise WorkerFailed("the ablation ends", "TW-worker-lost") from error
            self._warn(str(error))
            raise  # what it has raised on purpose, this process meets and reports in its turn
        finally:
            with self._lock:
                self._idle.append(place)


def _run(title: str, make: Callable[[], None]) -> None:
    make()


_TASK = Task(
    _run,
    name="run",
    task_run_name="{title}",
    retries=LOSSES_OF_A_RUN,
    retry_delay_seconds=0,
    retry_condition_fn=lambda task, task_run, state: isinstance(state.data, WorkerLost),
    persist_result=False,
    cache_policy=NO_CACHE,
)


def main(parent: ParentProcess, samples_ahead: bool) -> None:
    """A worker: make the runs that are requested, and report on each.

    With `samples_ahead` a further process samples the rollouts ahead, where `rollout.lag` allows it.
    """
    with (
        computing_for_another(),
        run_reporter(parent.report) as reporter,
        sampling_ahead(samples_ahead, reporter.finished, print) as sampler,
    ):
        last: RunOrder | None = None

        def make(order: RunOrder) -> None:
            nonlocal last
            if last is not None and last.experiment == order.experiment:
                order = replace(order, experiment=last.experiment)  # with the world that was made for it
            last = order
            with suppress(TrainingEnded):  # it is reported as the outcome of the run
                run_recorded(order, reporter, sampler)

        parent.answer(make)
