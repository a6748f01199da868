"""A process of ours that computes for this one on request, over a pipe that only the two hold.

    this process                           the child: python -m turnwise.child_process MODULE HANDLE
    ChildProcess(MODULE, *arguments)  ->   MODULE.main(parent, *arguments), which calls parent.answer(function)
    child.ask(request, heard)         ->   function(request)
        heard(report)                <-        parent.report(report), from any of its threads
        what `ask` returns or raises <-        what the function returns or raises
    child.finish()                    ->   parent.answer returns

A child ends with the process that started it, however that ends and whatever the child is at: the kernel closes the
pipe that is its standard input. What it prints goes into a file, whose end is shown where it is lost. Messages are
pickles, which nobody else can send. Children that compute together are a `ProcessGroup`.

Why not `concurrent.futures.ProcessPoolExecutor` or loky 3.7 (measured with Python 3.11)? With both a worker was still
there 5 s after a SIGKILL of its parent, idle and at work; one lost worker breaks the pool, which says neither with what
status it ended nor what it printed; a call cannot be sent to one worker, nor to each of a group, and reports nothing
before it returns; and to start afresh (spawn) the first runs the user's script again. torchrun starts programs and has
no requests. Of Python's `multiprocessing` this takes `Pipe`, `Connection` and `wait`.
"""

from __future__ import annotations

import importlib
import os
import pickle
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from typing import Any

from turnwise.errors import TurnwiseError
from turnwise.own_process import collect_rarely, leave
from turnwise.project import start_folder

SECONDS_FOR_LAST_WORDS = 5.0
"""How long a child may take to end, once it no longer answers."""
LAST_WORDS = 2000
"""Number of bytes of what a child has printed that are shown when it is lost."""
GOES_ON = "give the same command again, which goes on after the last stage that was stored"
"""What to do about children that were lost."""


class ChildLost(Exception):
    """A child has ended before it has answered."""

    def __init__(self, status: int, last_words: str) -> None:
        how = f"was ended by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"
        super().__init__(how)
        self.status = status
        """Its exit status; of one that was killed the signal's number, negative."""
        self.last_words = last_words
        """The end of what it has printed."""


class ChildProcess:
    """A running child. One thread asks it at a time; any may `kill` it."""

    def __init__(self, module: str, *arguments: Any, environment: Mapping[str, str] = os.environ) -> None:
        """Start it, in the folder in which this process began, with the module search path of this process."""
        self.pipe, there = Pipe()
        """This process's end of the pipe: there is something to be read when the child has said something."""
        self._printed = tempfile.TemporaryFile()  # noqa: SIM115  (closed by `free`)
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", __name__, module, str(there.fileno())],
            stdin=subprocess.PIPE,  # closed when this process ends
            stdout=self._printed,
            stderr=self._printed,
            pass_fds=[there.fileno()],
            env={**environment, "PYTHONPATH": os.pathsep.join(sys.path)},
            cwd=start_folder(),
        )
        there.close()
        self.send(arguments)

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        return self._process.poll() is None

    @property
    def process_id(self) -> int:
        """Its process's number."""
        return self._process.pid

    def send(self, request: Any) -> None:
        """Send a request. That the child has ended shows when the answer is waited for."""
        with suppress(OSError):
            self.pipe.send(request)

    def answer(self, heard: Callable[[Any], None] = lambda report: None) -> Any:
        """Wait for the answer to the request that was sent; `heard` is called with each report that comes before.

        Raises what the child's function raises, with the child's traceback as a note unless it was raised on purpose,
        and ChildLost where the child ends.
        """
        while True:
            kind: str = "end"
            content: Any = None
            with suppress(EOFError, OSError):
                kind, content = self.pipe.recv()
            if kind == "end":
                raise self._loss()
            if kind == "answer":
                return content
            if kind == "error":
                raise content
            heard(content)

    def ask(self, request: Any, heard: Callable[[Any], None] = lambda report: None) -> Any:
        """Send a request and wait for its answer: see `answer`."""
        self.send(request)
        return self.answer(heard)

    def finish(self) -> None:
        """Let it end, which has answered everything, and wait until it has."""
        self.pipe.close()
        self._process.wait()
        self.free()

    def kill(self) -> None:
        """End it at once; `free` waits for it."""
        self._process.kill()

    def free(self) -> None:
        """Wait until it has ended, which was killed, and close what it was asked by and what it printed into."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()
        self.pipe.close()
        self._printed.close()

    def discard(self) -> None:
        """End it at once, and wait until it has."""
        self.kill()
        self.free()

    def _loss(self) -> ChildLost:
        try:
            status = self._process.wait(SECONDS_FOR_LAST_WORDS)
        except subprocess.TimeoutExpired:
            status = 0
        self._printed.seek(0)
        return ChildLost(status, self._printed.read()[-LAST_WORDS:].decode(errors="replace").strip())


def failure_message(child: str, error: Exception, consequence: str) -> str:
    """The sentence for a child that failed or was lost, with what happens to its work, and what it said last."""
    how, words = "failed", "\n".join(getattr(error, "__notes__", [str(error)]))
    if isinstance(error, ChildLost):
        how, words = f"ended with status {error.status}", error.last_words
    return f"{child} {how}; {consequence}. It said:\n{words}"


class ProcessGroup:
    """Children that compute together. They end with this object, and a folder of theirs is removed then."""

    def __init__(self, kind: str, purpose: str, children: Sequence[ChildProcess], folder: str | None = None) -> None:
        """`kind` and `purpose` name them where one is lost: all engine processes must live as long as ..."""
        self._kind, self._purpose, self._children = kind, purpose, children
        self._ending = weakref.finalize(self, _end, children, folder, os.getpid())

    @property
    def alive(self) -> bool:
        """Whether they can be asked: none was lost, and `close` was not called."""
        return self._ending.alive and all(each.alive for each in self._children)

    @property
    def process_ids(self) -> list[int]:
        """Their processes' numbers, in order."""
        return [each.process_id for each in self._children]

    def close(self) -> None:
        """End them."""
        self._ending()

    def ask(self, requests: Mapping[int, Any]) -> tuple[dict[int, Any], dict[int, Exception]]:
        """Send each request to the child of that number, then wait for all: the answers, and what was raised.

        When one has failed the others have `SECONDS_FOR_LAST_WORDS`, since they may wait for it; who does not answer by
        then is in neither. Where this call itself is interrupted, all end: some have done what the others have not.
        """
        answers: dict[int, Any] = {}
        failures: dict[int, Exception] = {}
        try:
            for number, request in requests.items():
                self._children[number].send(request)
            waiting = {self._children[number].pipe: number for number in requests}
            until: float | None = None
            while waiting:
                ready = wait([*waiting], None if until is None else max(0.0, until - time.monotonic()))
                if not ready:
                    break
                for pipe in ready:
                    assert isinstance(pipe, Connection)
                    number = waiting.pop(pipe)
                    try:
                        answers[number] = self._children[number].answer()
                    except Exception as error:
                        failures[number] = error.with_traceback(None)  # it would hold this group
                        until = until or time.monotonic() + SECONDS_FOR_LAST_WORDS
        except BaseException:
            self.close()
            raise
        return answers, failures

    def loss(self, failures: Mapping[int, Exception]) -> str | None:
        """The sentence for the first child that was lost, since the errors of others follow from it; None: none was."""
        for number, error in sorted(failures.items()):
            if isinstance(error, ChildLost):
                words = f". It said: {error.last_words}" if error.last_words else ""
                return (
                    f"all {len(self._children)} {self._kind} processes must live as long as {self._purpose}; process "
                    f"{number} {error}: {GOES_ON}; if it was the memory that ran out, see what --dry-run plans{words}"
                )
        return None


def _end(children: Sequence[ChildProcess], folder: str | None, owner: int) -> None:
    if os.getpid() != owner:  # a fork of the process that started them
        return
    for child in children:
        child.kill()
    for child in children:
        child.free()
    if folder is not None:
        shutil.rmtree(folder, ignore_errors=True)


class ParentProcess:
    """In a child: the process that started it."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe, self._sending = pipe, threading.Lock()

    def report(self, report: Any) -> None:
        """Send a report on the request that is being answered. Any thread may."""
        self._send("report", report)

    def answer(self, function: Callable[[Any], Any]) -> None:
        """Answer every request with what the function returns or raises for it, until there are no more."""
        while True:
            try:
                request = self._pipe.recv()
            except EOFError:
                return
            try:
                kind, content = "answer", function(request)
            except Exception as error:
                kind, content = "error", _portable(error)
            self._send(kind, content)

    def _send(self, kind: str, content: Any) -> None:
        with self._sending:
            self._pipe.send((kind, content))


def _portable(error: Exception) -> Exception:
    """An exception that can be sent, with its traceback as a note unless it was raised on purpose."""
    where = f"In process {os.getpid()}:\n{traceback.format_exc()}"
    if not isinstance(error, TurnwiseError):
        error.add_note(where)
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(where)
    return error


def _end_with_parent() -> None:
    """End this process when the one that started it has closed its standard input, or was killed."""

    def wait_for_the_end() -> None:
        while os.read(0, 1):
            pass
        os._exit(1)

    threading.Thread(target=wait_for_the_end, daemon=True).start()


def run_child(module: str, handle: int) -> None:
    """Be a child: run the `main` of a module, for the process at the other end of the pipe of this handle."""
    _end_with_parent()  # first: importing the module may take seconds
    collect_rarely()
    pipe = Connection(handle)
    arguments = pipe.recv()
    importlib.import_module(module).main(ParentProcess(pipe), *arguments)
    leave(0)


if __name__ == "__main__":
    run_child(sys.argv[1], int(sys.argv[2]))
