"""Worker processes of this machine: each makes the runs that it is asked for, one after the other, and reports on them.

    this process                              a worker: a `turnwise.child_process`
    Prefect's task "run", in a thread of      a flow run for each order, within that of the ablation,
    Prefect's ThreadPoolTaskRunner            whose stages are cached as those of any process
        order, as a line of JSON      ->
                                      <-      reports, as lines of JSON
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
import traceback
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from prefect import Task
from prefect.cache_policies import NO_CACHE
from prefect.context import TagsContext
from prefect.futures import PrefectConcurrentFuture
from prefect.task_runners import ThreadPoolTaskRunner

from flows.runtime.housekeeping import computing_for_another
from flows.runtime.sampler import Sampler, sampling_ahead
from flows.workers.reported_runs import FollowedRun, RunOrder, make_ordered, read_order, read_report, reporting_stages
from turnwise.child_process import LAST_WORDS, ChildLost, ChildProcess, ParentProcess
from turnwise.errors import TurnwiseError
from turnwise.training_runs.display import Display, WorkerView

LOSSES_OF_A_RUN = 3
"""How often a run is given to a further worker when its own is lost. After that, this process makes it."""


class WorkerLost(TurnwiseError):
    """A worker was killed while it made a run."""


class WorkerFailed(TurnwiseError):
    """A worker has ended with an error of its own, which another one would repeat."""


class WorkerRefused(WorkerFailed):
    """A worker has ended with an error that was raised on purpose. This process meets and reports it in its turn."""


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
        """Have a run made, and follow it. Raises WorkerLost or WorkerFailed, and whatever recording it raises."""
        if self._child is None:
            self._began = time.monotonic()
            self._child = ChildProcess("flows.workers.processes")
        child = self._child
        if self._killed:
            child.kill()
        try:
            followed.open()
            order = followed.order.model_copy(update={"samples_ahead": self._samples_ahead})
            try:
                failure = child.ask(order.model_dump_json(), lambda line: followed.heard(read_report(line), self._view))
            except ChildLost as lost:
                kind = WorkerLost if lost.status < 0 else WorkerFailed
                failure = kind, f"ended with status {lost.status}", lost.last_words
            if failure is not None and followed.outcome is None:
                kind, how, words = failure
                raise kind(
                    f"a worker process {how}; what it left undone of {followed.order.name} is "
                    f"{'given to another one' if kind is WorkerLost else 'computed here'}. It said:\n{words}"
                )
        except BaseException:
            child.kill()
            child.free()
            self._close()
            raise
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


class RunCall:
    """The argument of the task: no data class, since Prefect would search its fields for results of other tasks."""

    def __init__(self, title: str, make: Callable[[], None]) -> None:
        self.title = title
        """The name of the task run in Prefect's UI."""
        self.make = make


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
        call = RunCall(followed.order.name, lambda: self._make(followed))
        with TagsContext(current_tags=set()):  # a tag costs a question to the server
            self._futures[followed.order.name] = self._runner.submit(_task(), parameters={"call": call})

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
                raise WorkerFailed("the ablation ends") from error
            if not isinstance(error, WorkerRefused):
                self._warn(str(error))
            raise
        finally:
            with self._lock:
                self._idle.append(place)


def _task() -> Task[[RunCall], None]:
    def run(call: RunCall) -> None:
        call.make()

    return Task(
        run,
        name="run",
        task_run_name="{call.title}",
        retries=LOSSES_OF_A_RUN,
        retry_delay_seconds=0,
        retry_condition_fn=lambda task, task_run, state: isinstance(state.data, WorkerLost),
        persist_result=False,
        cache_policy=NO_CACHE,
    )


def main(parent: ParentProcess) -> None:
    """A worker: make the runs that are requested, and report on each."""
    with computing_for_another(), reporting_stages(parent.report) as reporter, ExitStack() as ahead:
        order: RunOrder | None = None
        sampler: Sampler | None = None

        def make(text: str) -> tuple[type[TurnwiseError], str, str] | None:
            """Make a run; where that fails, how and with what words."""
            nonlocal order, sampler
            try:
                new = read_order(text, order)
                if order is None:
                    sampler = ahead.enter_context(sampling_ahead(new.samples_ahead, reporter.finished, print))
                order = new
                make_ordered(order, reporter, sampler)
            except TurnwiseError as error:
                return WorkerRefused, "failed", str(error)
            except Exception:
                return WorkerFailed, "failed", traceback.format_exc()[-LAST_WORDS:]
            return None

        parent.answer(make)
