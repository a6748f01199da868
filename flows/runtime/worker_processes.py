"""Worker processes that share the runs of an ablation with the main process.

Sampling with a small policy keeps only one core busy. So worker processes take runs from the same list, and their
results go into the shared store. The main process takes runs too; when none is left, it goes through all of them in
order: it finds the workers' results in the store and recomputes what a lost worker had started. It alone writes to
MLflow and to the terminal. The results do not depend on which process computed them.

Why not Prefect's `ProcessPoolTaskRunner` (3.7.7)? A worker costs the same to start, 10.8 processor seconds for 10.7
here on two busy cores, nearly all of it imports. But there

* one lost worker breaks the pool: with one of two workers killed, all four waiting tasks ended in `BrokenProcessPool`;
* a worker outlives a main process that is killed alone: it was still there when measured, 5 s after the SIGKILL;
* the main process does not learn which stages a worker has finished: the pool reports Prefect's events and logs alone;
* parameters and results travel as pickles.

Of `prefect.flow_engine.run_flow_in_subprocess` the last three hold too. Runs on other machines are flow runs of a
deployment (`flows.deployments`), not of this module.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO

from prefect import flow
from pydantic import BaseModel, ConfigDict

from flows.prepare import Prepared
from flows.run import run_variant
from flows.runtime.housekeeping import mark_flow_runs
from tasks.observing import Observer, StageCall, observing
from turnwise.errors import TrainingEnded
from turnwise.experiment import Experiment
from turnwise.store import Reference

LAST_WORDS = 2000
"""Number of characters of a worker's error output that are shown when it fails."""


class Assignment(BaseModel):
    """The input of a worker process: an ablation and how to share its runs."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    experiment: Experiment
    prepared: dict[str, Reference]
    taken: Path
    """A folder with a file for each run that some process has taken."""

    def runs(self) -> Iterator[tuple[str, int]]:
        """Take runs one at a time, each when the iterator is advanced; runs taken by another process are skipped."""
        for seed in self.experiment.ablation.seeds:
            for place, variant in enumerate(self.experiment.ablation.variants):
                try:
                    (self.taken / f"{seed}-{place}").touch(exist_ok=False)
                except FileExistsError:
                    continue
                yield variant, seed


class WorkerProcesses(Observer):
    """The worker processes of an ablation: see `worker_processes`.

    They are started when the main process has computed its first stage: if all is cached, there is no work to share.
    """

    def __init__(
        self,
        assignment: Assignment,
        number: int,
        files: ExitStack,
        report: Callable[[StageCall], None],
        warn: Callable[[str], None],
    ) -> None:
        self.assignment = assignment
        self.seconds = 0.0
        """Wall time of the workers in seconds, added up."""
        self._wanted, self._files, self._report, self._warn = number, files, report, warn
        self._processes: list[subprocess.Popen[str]] = []
        self._listeners: list[threading.Thread] = []
        self._ending = False

    @property
    def number(self) -> int:
        """How many have been started so far."""
        return len(self._processes)

    def finished(self, call: StageCall) -> None:
        """Start the workers at the first computed stage."""
        if not call.cached and not self._processes:
            for _ in range(self._wanted):
                self._start()

    def wait(self) -> None:
        """Wait until all workers have ended, with or without success."""
        for listener in self._listeners:
            listener.join()

    def end(self) -> None:
        """Kill the workers that are still running."""
        self._ending = True
        for process in self._processes:
            process.kill()
        self.wait()

    def _start(self) -> None:
        said = self._files.enter_context(tempfile.TemporaryFile("w+"))  # noqa: SIM115  (closed with the others)
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "flows.runtime.worker_processes"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=said,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},  # it finds whatever world this one finds
            text=True,
        )
        self._processes.append(self._files.enter_context(process))
        assert process.stdin is not None
        process.stdin.write(self.assignment.model_dump_json() + "\n")
        process.stdin.flush()
        self._listeners.append(
            threading.Thread(target=self._listen, args=(process, said), name="worker-process-listener")
        )
        self._listeners[-1].start()

    def _listen(self, process: subprocess.Popen[str], said: IO[str]) -> None:
        began = time.monotonic()
        assert process.stdout is not None
        for line in process.stdout:
            call = json.loads(line)
            self._report(StageCall(**{**call, "reference": Reference(**call["reference"])}))
        status = process.wait()
        self.seconds += time.monotonic() - began
        if status and not self._ending:
            said.seek(0)
            self._warn(
                f"a worker process ended with status {status}; what it left undone is computed here. It said:\n"
                f"{said.read()[-LAST_WORDS:].strip()}"
            )


@contextmanager
def worker_processes(
    experiment: Experiment,
    prepared: Prepared,
    number: int,
    report: Callable[[StageCall], None],
    warn: Callable[[str], None],
) -> Iterator[WorkerProcesses]:
    """Run this number of worker processes while the block runs. None of them outlives the block or this process.

    Args:
        report: called from another thread with every stage that a worker finishes.
        warn: called with a message for the user if a worker fails.
    """
    with tempfile.TemporaryDirectory() as taken, ExitStack() as files:
        assignment = Assignment(experiment=experiment, prepared=vars(prepared), taken=Path(taken))
        workers = WorkerProcesses(assignment, number, files, report, warn)
        try:
            with observing(workers):
                yield workers
        finally:
            workers.end()


class _Reporter(Observer):
    """Writes a line for every finished stage, for the main process to read."""

    def __init__(self, file: IO[str]) -> None:
        self._file = file

    def finished(self, call: StageCall) -> None:
        """Write the stage call as a line of JSON."""
        print(json.dumps({**vars(call), "reference": call.reference.model_dump()}), file=self._file, flush=True)


def main() -> None:
    """Worker process: take runs as standard input says, compute them, and report each stage on standard output.

    A run that a guard or an alarm ends is left to the main process, which reports it. The worker exits when standard
    input is closed.
    """
    assignment = Assignment.model_validate_json(sys.stdin.readline())
    threading.Thread(target=_exit_with_the_main_process, daemon=True).start()
    reporter = _Reporter(os.fdopen(os.dup(1), "w"))
    os.dup2(2, 1)  # all other output goes to standard error: the main process parses standard output
    mark_flow_runs()
    with observing(reporter):
        share_of_an_ablation(assignment)


@flow(
    name="share of an ablation",
    flow_run_name="{assignment.experiment.ablation.name}: another process",
    validate_parameters=False,
    persist_result=False,
)
def share_of_an_ablation(assignment: Assignment) -> None:
    """Compute the runs of an ablation that no other process has taken."""
    experiment, prepared = assignment.experiment, Prepared(**assignment.prepared)
    for variant, seed in assignment.runs():
        with suppress(TrainingEnded):
            run_variant(experiment.variant(variant), prepared, variant, seed)


def _exit_with_the_main_process() -> None:
    """Exit when standard input closes, as it does when the main process is killed."""
    sys.stdin.read()
    os._exit(1)


if __name__ == "__main__":
    main()
