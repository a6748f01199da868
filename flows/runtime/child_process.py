"""A process that computes stages for this one: it is given work as lines of JSON and reports every finished stage.

    this process          the child
    ChildProcess.send     given_work()      each line is one piece of work, a model as JSON
    report(call)          reporting()       each line is a `StageCall`

Results go into the shared store, so nothing but the report comes back. A child does not outlive the process that
started it: it exits as soon as its standard input is closed.
"""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import IO

from pydantic import BaseModel

from tasks.observing import Observer, StageCall, observing
from turnwise.store import Reference

LAST_WORDS = 2000
"""Number of characters of a child's error output that are shown when it fails."""
NO_MORE_WORK = "end\n"


class ChildProcess:
    """A running child: `python -m MODULE`, whose `main` calls `given_work` and `reporting`."""

    def __init__(self, module: str, report: Callable[[StageCall], None], ended: Callable[[int, str], None]) -> None:
        """Start the child.

        Args:
            report: called from another thread with every stage that the child has finished.
            ended: called from that thread when the child has ended, with its exit status and its last words.
        """
        self._report, self._ended = report, ended
        self._said = tempfile.TemporaryFile("w+")  # noqa: SIM115  (closed by the listener)
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},  # it finds whatever world this one finds
            text=True,
        )
        self._listener = threading.Thread(target=self._listen, name=f"listener of {module}")
        self._listener.start()

    def send(self, work: BaseModel) -> None:
        """Give it a piece of work. One that has ended is sent nothing."""
        self._write(work.model_dump_json() + "\n")

    def finish(self) -> None:
        """Let it end once it has done its work."""
        self._write(NO_MORE_WORK)

    def wait(self) -> None:
        """Wait until it has ended."""
        self._listener.join()

    def kill(self) -> None:
        """End it at once."""
        self._process.kill()
        self.wait()

    def _write(self, line: str) -> None:
        assert self._process.stdin is not None
        with suppress(BrokenPipeError, ValueError):  # it has ended; the listener has closed the pipe
            self._process.stdin.write(line)
            self._process.stdin.flush()

    def _listen(self) -> None:
        with self._said, self._process:
            assert self._process.stdout is not None
            for line in self._process.stdout:
                call = json.loads(line)
                self._report(StageCall(**{**call, "reference": Reference(**call["reference"])}))
            status = self._process.wait()
            self._said.seek(0)
            self._ended(status, self._said.read()[-LAST_WORDS:].strip())


def given_work() -> Iterator[str]:
    """In a child: the pieces of work, as JSON, until there is no more. The child exits when standard input closes."""
    waiting: queue.Queue[str] = queue.Queue()

    def listen() -> None:
        # Not sys.stdin, which the interpreter could not close at its end while this thread waits for a line of it.
        for line in open(0, closefd=False):  # noqa: SIM115
            waiting.put(line)
        os._exit(1)  # the other process has ended, or was killed

    threading.Thread(target=listen, daemon=True).start()
    while (line := waiting.get()) != NO_MORE_WORK:
        yield line


class Reporter(Observer):
    """Writes a line for every finished stage, for the other process to read."""

    def __init__(self, file: IO[str]) -> None:
        self._file = file

    def finished(self, call: StageCall) -> None:
        """Write the stage call as a line of JSON, whole: several threads may report."""
        self._file.write(json.dumps({**vars(call), "reference": call.reference.model_dump()}) + "\n")
        self._file.flush()


@contextmanager
def reporting() -> Iterator[Reporter]:
    """In a child: report every stage that the block computes on standard output; all other output is an error's."""
    from flows.runtime.housekeeping import mark_flow_runs  # imports Prefect

    reporter = Reporter(os.fdopen(os.dup(1), "w"))
    os.dup2(2, 1)
    mark_flow_runs()
    with observing(reporter):
        yield reporter
