"""Runs of an ablation that other processes compute beside this one.

Sampling with a small policy keeps one core busy, however many there are. So other processes take runs from the same
list, and what they compute goes into the store that all share. This one takes runs too, and when none is left it goes
through all of them in order: what another has computed is found, and what another was lost with is computed here. It
alone writes to MLflow and to the terminal. What comes out does not depend on who computed it.
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
"""Characters of what a process said that are repeated when it fails."""


class Assignment(BaseModel):
    """What a process must know to compute runs of an ablation."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    experiment: Experiment
    prepared: dict[str, Reference]
    taken: Path
    """A folder that holds a file for each run that some process has taken."""

    def runs(self) -> Iterator[tuple[str, int]]:
        """The runs that nobody had taken, each when it is asked for: now they are this process's."""
        for seed in self.experiment.ablation.seeds:
            for place, variant in enumerate(self.experiment.ablation.variants):
                try:
                    (self.taken / f"{seed}-{place}").touch(exist_ok=False)
                except FileExistsError:
                    continue
                yield variant, seed


class Beside(Observer):
    """The other processes of an ablation: see `beside`. They are started when this one has computed its first stage:
    where all is found there is nothing to share.
    """

    def __init__(
        self,
        assignment: Assignment,
        others: int,
        files: ExitStack,
        told: Callable[[StageCall], None],
        warn: Callable[[str], None],
    ) -> None:
        self.assignment = assignment
        self.seconds = 0.0
        """For how long the others have been at work, added up."""
        self._wanted, self._files, self._told, self._warn = others, files, told, warn
        self._processes: list[subprocess.Popen[str]] = []
        self._listeners: list[threading.Thread] = []
        self._ending = False

    @property
    def others(self) -> int:
        """How many other processes there are or were."""
        return len(self._processes)

    def finished(self, call: StageCall) -> None:
        """A stage of this process has returned."""
        if not call.cached and not self._processes:
            for _ in range(self._wanted):
                self._start()

    def wait(self) -> None:
        """Until all have ended, with or without success."""
        for listener in self._listeners:
            listener.join()

    def end(self) -> None:
        """End those that still run."""
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
        self._listeners.append(threading.Thread(target=self._listen, args=(process, said), name="beside"))
        self._listeners[-1].start()

    def _listen(self, process: subprocess.Popen[str], said: IO[str]) -> None:
        began = time.monotonic()
        assert process.stdout is not None
        for line in process.stdout:
            call = json.loads(line)
            self._told(StageCall(**{**call, "reference": Reference(**call["reference"])}))
        status = process.wait()
        self.seconds += time.monotonic() - began
        if status and not self._ending:
            said.seek(0)
            self._warn(
                f"a process that computed runs beside this one ended with status {status}; what it left undone is "
                f"computed here. It said:\n{said.read()[-LAST_WORDS:].strip()}"
            )


@contextmanager
def beside(
    experiment: Experiment,
    prepared: Prepared,
    others: int,
    told: Callable[[StageCall], None],
    warn: Callable[[str], None],
) -> Iterator[Beside]:
    """While the block runs, `others` more processes compute runs. None of them outlives it, nor this process.

    Args:
        told: is called with every stage that one of them finishes, from another thread.
        warn: is called with what a person should know about one that failed.
    """
    with tempfile.TemporaryDirectory() as taken, ExitStack() as files:
        assignment = Assignment(experiment=experiment, prepared=vars(prepared), taken=Path(taken))
        found = Beside(assignment, others, files, told, warn)
        try:
            with observing(found):
                yield found
        finally:
            found.end()


class _Teller(Observer):
    """Writes a line for every stage that is finished."""

    def __init__(self, file: IO[str]) -> None:
        self._file = file

    def finished(self, call: StageCall) -> None:
        """A stage has returned."""
        print(json.dumps({**vars(call), "reference": call.reference.model_dump()}), file=self._file, flush=True)


def main() -> None:
    """The other side: take runs and compute them, as standard input says, and tell of each stage on standard output.

    A run that a guard or an alarm ends is left to the first process, which says so. Ends when standard input does.
    """
    assignment = Assignment.model_validate_json(sys.stdin.readline())
    threading.Thread(target=_end_with_the_first, daemon=True).start()
    teller = _Teller(os.fdopen(os.dup(1), "w"))
    os.dup2(2, 1)  # whatever else is said is not for the first process to read
    experiment, prepared = assignment.experiment, Prepared(**assignment.prepared)

    @flow(name="ablation", flow_run_name=f"{experiment.ablation.name}: beside another process")
    def compute() -> None:
        with observing(teller):
            for variant, seed in assignment.runs():
                with suppress(TrainingEnded):
                    run_variant(experiment.variant(variant), prepared, variant, seed)

    mark_flow_runs()
    compute()


def _end_with_the_first() -> None:
    """A process that is killed closes its end of the pipe."""
    sys.stdin.read()
    os._exit(1)


if __name__ == "__main__":
    main()
