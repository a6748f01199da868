"""A process of ours that computes for this one, asked over a pipe that only the two hold. It ends with this process.

this process                      the child: python -m MODULE
child = Child(MODULE, ...)        end_with_standard_input(), then a Connection on the handle it was given

Several that compute together end together: `ended_with` and `sentence_for_loss` are about them.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import weakref
from collections.abc import Mapping, Sequence
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any

SECONDS_FOR_LAST_WORDS = 5.0
"""How long a child may take to end, once it no longer answers."""
LAST_WORDS = 2000
GOES_ON = "give the same command again, which goes on after the last stage that was stored"
"""What to do about a child that was lost."""


class Child:
    """A running child."""

    asks: Connection
    """This process's end of the pipe."""

    def __init__(self, module: str, arguments: Sequence[str], environment: Mapping[str, str]) -> None:
        """Start `python -m module HANDLE ARGUMENTS...`, HANDLE being the number of its end of the pipe."""
        self.asks, there = Pipe()
        self._said = tempfile.TemporaryFile()  # noqa: SIM115  (closed by `free`)
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", module, str(there.fileno()), *arguments],
            stdin=subprocess.PIPE,  # closed when this process ends
            stdout=self._said,
            stderr=self._said,
            pass_fds=[there.fileno()],
            env={**environment, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        there.close()

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        return self._process.poll() is None

    @property
    def process_id(self) -> int:
        """Its process's number."""
        return self._process.pid

    def death(self) -> tuple[str, str]:
        """How it ended, and the last that it printed."""
        try:
            status = self._process.wait(SECONDS_FOR_LAST_WORDS)
        except subprocess.TimeoutExpired:
            status = 0
        how = f"was ended by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"
        self._said.seek(0)
        return how, self._said.read()[-LAST_WORDS:].decode(errors="replace").strip()

    def kill(self) -> None:
        """End it at once; `free` waits for it."""
        self._process.kill()

    def free(self) -> None:
        """Wait until it has ended, and close what it was asked by and what it printed into."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()
        self.asks.close()
        self._said.close()


def ended_with(holder: Any, children: Sequence[Child], folder: str | None = None) -> weakref.finalize[..., Any]:
    """Have these end, and a folder of theirs removed, when `holder` or this process does, or when this is called."""
    return weakref.finalize(holder, _end, children, folder, os.getpid())


def _end(children: Sequence[Child], folder: str | None, owner: int) -> None:
    if os.getpid() != owner:  # a fork of the process that started them
        return
    for child in children:
        child.kill()
    for child in children:
        child.free()
    if folder is not None:
        shutil.rmtree(folder, ignore_errors=True)


def sentence_for_loss(children: Sequence[Child], lost: int, kind: str, purpose: str) -> str:
    """What to say when the child of this number has died: all of this kind must live as long as `purpose`."""
    how, words = children[lost].death()
    return (
        f"all {len(children)} {kind} processes must live as long as {purpose}; process {lost} {how}: {GOES_ON}; if it "
        f"was the memory that ran out, see what --dry-run plans{f'. It said: {words}' if words else ''}"
    )


def end_with_standard_input() -> None:
    """In a child: end it when the process that started it has closed its standard input, or was killed."""
    threading.Thread(target=_wait_for_the_end, daemon=True).start()


def _wait_for_the_end() -> None:
    while os.read(0, 1):
        pass
    os._exit(1)
