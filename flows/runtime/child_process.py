"""A process that computes stages for this one: it is given work and reports on it, both as lines of JSON.

    this process          the child: python -m flows.runtime.start_child MODULE
    ChildProcess.send     given_work()      each line is one piece of work, a model as JSON
    heard(line)           saying()          each line is a report

Results go into the shared store, so nothing but the report comes back. A child does not outlive the process that
started it: it exits as soon as its standard input is closed.
"""

from __future__ import annotations

import os
import queue
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from pydantic import BaseModel

from flows.runtime.direct_clients import connect_directly
from turnwise.project import one_project, start_folder

LAST_WORDS = 2000
"""Number of characters of a child's error output that are shown when it fails."""
NO_MORE_WORK = "end\n"
REFUSED = 2
"""The exit status of a child that ended with an error raised on purpose. This process, which computes what the child
left undone, meets the same error and says it in one sentence: nothing need be said of the child."""


class ChildProcess:
    """A running child: a process that runs the `main` of a module, which calls `given_work` and `saying`."""

    def __init__(self, module: str, heard: Callable[[str], None], ended: Callable[[int, str], None]) -> None:
        """Start the child.

        Args:
            heard: called from another thread with every line that the child says.
            ended: called from that thread when the child has ended, with its exit status and its last words.
        """
        self._heard, self._ended = heard, ended
        self._said = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115  (closed by the listener)
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "flows.runtime.start_child", module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},  # it finds whatever world this one finds
            cwd=start_folder(),
            encoding="utf-8",
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
                if line.endswith("\n"):  # else it was killed within the line
                    self._heard(line)
            status = self._process.wait()
            self._said.seek(0)
            self._ended(status, self._said.read()[-LAST_WORDS:].strip())


def given_work() -> Iterator[str]:
    """In a child: the pieces of work, as JSON, until there is no more. The child exits when standard input closes."""
    waiting: queue.Queue[str] = queue.Queue()

    def listen() -> None:
        # Not sys.stdin, which the interpreter could not close at its end while this thread waits for a line of it.
        for line in open(0, encoding="utf-8", closefd=False):  # noqa: SIM115
            waiting.put(line)
        os._exit(1)  # the other process has ended, or was killed

    threading.Thread(target=listen, daemon=True).start()
    while (line := waiting.get()) != NO_MORE_WORK:
        yield line


@contextmanager
def saying() -> Iterator[Callable[[str], None]]:
    """In a child: what says a line to the other process. All other output of the block counts as an error's."""
    from flows.runtime.housekeeping import mark_flow_runs  # imports Prefect

    file, alone = os.fdopen(os.dup(1), "w", encoding="utf-8"), threading.Lock()
    os.dup2(2, 1)
    connect_directly(os.environ.get("PREFECT_API_URL", ""))
    mark_flow_runs()

    def say(line: str) -> None:
        with alone:  # several threads may speak
            file.write(line + "\n")
            file.flush()

    with one_project():
        yield say
