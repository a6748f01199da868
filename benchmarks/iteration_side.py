"""One side of `benchmarks.iteration`: an experiment of one checkout, with an account of every iteration.

Run as a script with the interpreter of that checkout and the checkout in PYTHONPATH, so that all that it imports is the
checkout's. It reads one line of JSON (`Wanted`), runs the experiment as `turnwise experiment` does, and writes a line
of JSON (`Account`) after every iteration; it goes on when it has read another line. At last it writes the digest of the
results.

The account is taken by light observers around named functions. The processor time of the process (all threads that are
not Python's own, such as those of OpenMP, included) is credited to the innermost of them that is running: a part's time
is what its functions took themselves, without the functions of other parts that they called. Python's other threads
are read from their own clocks, the Prefect server's processes from psutil. An observer costs a few microseconds.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import json
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TextIO

import psutil

PARTS: dict[str, tuple[str, ...]] = {
    "engine": (
        "turnwise.policy.engines.resident:resident_engine",
        "turnwise.policy.engines.vllm:VllmEngine.load",
        "turnwise.policy.engines.vllm:VllmEngine.begin",
        "turnwise.policy.engines.vllm:VllmEngine.submit",
        "turnwise.policy.engines.vllm:VllmEngine.step",
        "turnwise.policy.engines.embedded:EmbeddedEngine.load",
        "turnwise.policy.engines.embedded:EmbeddedEngine.begin",
        "turnwise.policy.engines.embedded:EmbeddedEngine.submit",
        "turnwise.policy.engines.embedded:EmbeddedEngine.step",
    ),
    "worlds": (
        "turnwise.agent.host:Host.reset",
        "turnwise.agent.host:Host.start",
        "turnwise.agent.host:Host.finish",
        "turnwise.agent.host:Host.close",
    ),
    "learner": (
        "tasks.update.update:update.fn",
        "tasks.update.critic:learn_values.fn",
        "turnwise.policy.learner.learner:Learner.update",
    ),
    "episode loop": ("tasks.rollout.rollout:rollout.fn",),
    "evaluation": ("tasks.rollout.evaluate:evaluate.fn",),
    "probe": ("tasks.health.health:probe.fn",),
    "credit": ("tasks.credit.credit:credit.fn", "tasks.credit.select:select.fn"),
    "health": ("tasks.health.health:health.fn", "flows.health:return_to_healthy"),
    "reading": (
        "turnwise.data.trajectory_files:read_trajectories",
        "tasks.restoring:trajectories_of",
        "turnwise.data.trajectory_files:read_arrays",
        "turnwise.data.trajectory_files:read_advantages",
        "tasks.health.health:read_health",
        "turnwise.store.artifacts:Store.folder",
        "turnwise.store.artifacts:Store.metrics",
        "turnwise.store.artifacts:Store.clock",
    ),
    "writing and digests": (
        "turnwise.store.artifacts:Store.write",
        "turnwise.store.artifacts:Store.record_lineage",
        "turnwise.store.artifacts:Store.record_clock",
        "turnwise.data.trajectory_files:write_trajectories",
        "tasks.credit.credit:save_credit",
        "turnwise.policy.learner.learner:Learner.save",
    ),
    "cache keys": (
        "tasks.caching:Dependencies.ingredients",
        "tasks.caching:_run_and_record",
        "turnwise.store.stage_records:recorded",
    ),
    "Prefect": ("prefect.tasks:Task.__call__",),
    "MLflow": ("turnwise.records.record:AblationRecord.iteration",),
    "retention": ("flows.train:_prune_behind",),
    "display": ("turnwise.training_runs.display:Display.started", "turnwise.training_runs.display:Display.finished"),
}
"""The functions of each part, `module:name`. Those that a checkout does not have are left out."""
THREADS, SERVER, REST = "Prefect's threads", "Prefect's server", "rest"
WHOLE = frozenset({"evaluation", "probe"})
"""Parts that are not divided: what they call is theirs."""


@dataclass(frozen=True)
class Wanted:
    """What to run: the one line on standard input."""

    overlays: list[str]
    settings: dict[str, Any]
    variant: str | None
    seed: int
    home: str


@dataclass(frozen=True)
class Account:
    """One iteration, in seconds."""

    number: int
    processor: dict[str, float]
    """Processor time by part."""
    waited: dict[str, float]
    """Wall time by part during which the main thread did not compute, less what helping threads computed for it."""


class Accountant:
    """Credits the processor time of this process to the part that is running."""

    def __init__(self) -> None:
        self.processor: Counter[str] = Counter()
        self.wall: Counter[str] = Counter()
        self.threads: Counter[str] = Counter()
        self._running = [REST]
        self._main = threading.main_thread()
        self._clocks: dict[int, float] = {}
        self._processor, self._others, self._wall = time.process_time(), self._other_threads(), time.perf_counter()

    def settle(self) -> None:
        """Credit what has passed since the last call."""
        processor, others, wall = time.process_time(), self._other_threads(), time.perf_counter()
        part = self._running[-1]
        self.processor[part] += max(0.0, processor - self._processor - (others - self._others))
        self.processor[THREADS] += others - self._others
        self.wall[part] += wall - self._wall
        self._processor, self._others, self._wall = processor, others, wall

    def enter(self, part: str) -> bool:
        """Begin a part; False where the call is not divided from what runs."""
        if threading.current_thread() is not self._main or self._running[-1] in WHOLE:
            return False
        self.settle()
        self._running.append(part)
        return True

    def leave(self) -> None:
        """End the part that was begun last."""
        self.settle()
        self._running.pop()

    def _other_threads(self) -> float:
        """The processor seconds of all other Python threads so far, those that have ended included."""
        for thread in threading.enumerate():
            if thread is not self._main and thread.native_id is not None:
                with suppress(OSError):  # it has ended
                    now = time.clock_gettime(processor_clock(thread.native_id))
                    self.threads[thread.name] += now - self._clocks.get(thread.native_id, 0.0)
                    self._clocks[thread.native_id] = now
        return sum(self.threads.values())


def processor_clock(thread: int) -> int:
    """Linux's clock of the processor seconds of a thread, by its native number.

    time.pthread_getcpuclockid gives it, too, and ends the process with a segmentation fault where the thread has ended.
    """
    return (~thread << 3) | 6


class Observed:
    """A context manager of which entering and leaving are credited to a part, and the block within is not."""

    def __init__(self, within: Any, part: str, accountant: Accountant) -> None:
        self._within, self._part, self._accountant = within, part, accountant

    def __enter__(self) -> Any:
        return self._credited(self._within.__enter__)

    def __exit__(self, *error: Any) -> Any:
        return self._credited(self._within.__exit__, *error)

    def _credited(self, function: Callable[..., Any], *arguments: Any) -> Any:
        entered = self._accountant.enter(self._part)
        try:
            return function(*arguments)
        finally:
            if entered:
                self._accountant.leave()


def observed(function: Callable[..., Any], part: str, accountant: Accountant) -> Callable[..., Any]:
    """The function, credited to a part."""
    managed = inspect.isgeneratorfunction(inspect.unwrap(function))

    @functools.wraps(function)
    def within(*arguments: Any, **keywords: Any) -> Any:
        if managed:
            return Observed(function(*arguments, **keywords), part, accountant)
        entered = accountant.enter(part)
        try:
            return function(*arguments, **keywords)
        finally:
            if entered:
                accountant.leave()

    return within


def observe(accountant: Accountant) -> None:
    """Put an observer around every function of `PARTS`, wherever it was imported to."""
    for part, names in PARTS.items():
        for name in names:
            module, _, path = name.partition(":")
            with suppress(ImportError, AttributeError):
                owner: Any = importlib.import_module(module)
                *owners, last = path.split(".")
                for each in owners:
                    owner = getattr(owner, each)
                before = inspect.getattr_static(owner, last)
                after = observed(getattr(owner, last), part, accountant)
                setattr(owner, last, after)
                for other in places_of(before):
                    setattr(other, last, after)


def places_of(function: Any) -> Iterator[Any]:
    """Our modules that have imported this function under its own name."""
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] in ("turnwise", "tasks", "flows") and (
            vars(module).get(getattr(function, "__name__", "")) is function
        ):
            yield module


class ServerClock:
    """The processor seconds of the Prefect server of a home."""

    def __init__(self, home: Path) -> None:
        self._record = home / "prefect" / "server.json"
        self._process: psutil.Process | None = None

    def seconds(self) -> float:
        """So far."""
        if self._process is None:
            self._process = psutil.Process(int(json.loads(self._record.read_text(encoding="utf-8"))["process"]))
        times = self._process.cpu_times()
        return times.user + times.system


class Turns:
    """Writes the account of each iteration, and waits for its turn."""

    def __init__(self, accountant: Accountant, server: ServerClock, answers: TextIO) -> None:
        self._accountant, self._server, self._answers = accountant, server, answers
        self._served = server.seconds()

    def finish_iteration(self, number: int) -> None:
        """One iteration has ended."""
        accountant = self._accountant
        accountant.settle()
        served = self._server.seconds()
        processor = {**accountant.processor, SERVER: served - self._served}
        waited = {part: max(0.0, wall - accountant.processor[part]) for part, wall in accountant.wall.items()}
        self.say(asdict(Account(number, processor, waited)))
        sys.stdin.readline()
        # What the server does meanwhile belongs to the iteration that has ended, and is counted with the next one.
        self._served = served
        accountant.settle()
        accountant.processor.clear()
        accountant.wall.clear()

    def say(self, content: dict[str, Any]) -> None:
        """Write a line."""
        self._answers.write(json.dumps(content) + "\n")
        self._answers.flush()


def run_whole(ablation: Any, experiment: Any) -> Any:
    """Run an experiment by the flow of the checkout's `flows.ablation`, under its earlier name where it has that."""
    if hasattr(ablation, "comparison"):
        return ablation.comparison(experiment)
    from rich.console import Console

    return ablation.compare(experiment, Console(stderr=True))


def main() -> None:
    """Run the experiment that standard input says."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what the experiment shows is no answer
    wanted = Wanted(**json.loads(sys.stdin.readline()))
    os.environ["TURNWISE_HOME"] = wanted.home
    from flows.runtime.server import ensure_server, stop_server

    ensure_server()
    try:
        accountant = Accountant()
        from flows import ablation
        from turnwise.experiment import load, single
        from turnwise.records.record import AblationRecord

        observe(accountant)
        turns = Turns(accountant, ServerClock(Path(wanted.home)), answers)
        record_iteration = AblationRecord.iteration

        @functools.wraps(record_iteration)
        def iteration(self: Any, run: Any, iteration: Any) -> None:
            record_iteration(self, run, iteration)
            turns.finish_iteration(iteration.number)

        AblationRecord.iteration = iteration  # type: ignore[method-assign]
        experiment = load(Path("params.yaml"), list(map(Path, wanted.overlays)), wanted.settings)
        result = run_whole(ablation, single(experiment, wanted.variant, wanted.seed))
        turns.say({"digest": result.digest, "threads": dict(accountant.threads)})
    finally:
        stop_server()


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    os._exit(0)  # tearing vLLM down takes seconds
