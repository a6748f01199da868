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

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from flows.prepare import Prepared
from flows.run import run_variant
from flows.runtime.child_process import ChildProcess, given_work, reporting
from flows.runtime.flow_runs import flow_run
from flows.runtime.sampler import sampling_ahead
from tasks.observing import Observer, StageCall, observing
from turnwise.errors import TrainingEnded
from turnwise.experiment import Experiment
from turnwise.store import Reference


class Assignment(BaseModel):
    """The input of a worker process: an ablation and how to share its runs."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    experiment: Experiment
    prepared: dict[str, Reference]
    taken: Path
    """A folder with a file for each run that some process has taken."""
    samples_ahead: bool = False
    """Whether rollouts are sampled ahead in a further process, where `rollout.lag` allows it."""

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
        samplers: int,
        report: Callable[[StageCall], None],
        warn: Callable[[str], None],
    ) -> None:
        self.assignment = assignment
        self.seconds = 0.0
        """Wall time of the workers in seconds, added up."""
        self._wanted, self._samplers, self._report, self._warn = number, samplers, report, warn
        self._processes: list[ChildProcess] = []
        self._ending = False

    @property
    def number(self) -> int:
        """How many have been started so far."""
        return len(self._processes)

    def finished(self, call: StageCall) -> None:
        """Start the workers at the first computed stage."""
        if call.cached or self._processes:
            return
        for place in range(self._wanted):
            process = ChildProcess("flows.runtime.worker_processes", self._report, self._noted_end())
            process.send(self.assignment.model_copy(update={"samples_ahead": place < self._samplers}))
            self._processes.append(process)

    def wait(self) -> None:
        """Wait until all workers have ended, with or without success."""
        for process in self._processes:
            process.wait()

    def end(self) -> None:
        """Kill the workers that are still running."""
        self._ending = True
        for process in self._processes:
            process.kill()

    def _noted_end(self) -> Callable[[int, str], None]:
        """What is done when a worker that starts now has ended."""
        began = time.monotonic()

        def note(status: int, last_words: str) -> None:
            self.seconds += time.monotonic() - began
            if status and not self._ending:
                self._warn(
                    f"a worker process ended with status {status}; what it left undone is computed here. It said:\n"
                    f"{last_words}"
                )

        return note


@contextmanager
def worker_processes(
    experiment: Experiment,
    prepared: Prepared,
    number: int,
    report: Callable[[StageCall], None],
    warn: Callable[[str], None],
    samplers: int = 0,
) -> Iterator[WorkerProcesses]:
    """Run this number of worker processes while the block runs. None of them outlives the block or this process.

    Args:
        report: called from another thread with every stage that a worker finishes.
        warn: called with a message for the user if a worker fails.
        samplers: how many of the workers have a process that samples ahead for them (`rollout.lag`).
    """
    with tempfile.TemporaryDirectory() as taken:
        assignment = Assignment(experiment=experiment, prepared=vars(prepared), taken=Path(taken))
        workers = WorkerProcesses(assignment, number, samplers, report, warn)
        try:
            with observing(workers):
                yield workers
        finally:
            workers.end()


def main() -> None:
    """Worker process: take runs as standard input says, compute them, and report each stage on standard output.

    A run that a guard or an alarm ends is left to the main process, which reports it.
    """
    assignment = Assignment.model_validate_json(next(given_work()))
    experiment, prepared = assignment.experiment, Prepared(**assignment.prepared)
    with reporting() as reporter, sampling_ahead(assignment.samples_ahead, reporter.finished, print) as sampler:

        @flow_run("share of an ablation", f"{experiment.ablation.name}: another process")
        def share_of_an_ablation() -> None:
            for variant, seed in assignment.runs():
                with suppress(TrainingEnded):
                    run_variant(experiment.variant(variant), prepared, variant, seed, sampler=sampler)

        share_of_an_ablation()


if __name__ == "__main__":
    main()
