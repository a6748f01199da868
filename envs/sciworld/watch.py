"""Tells a process that hangs from one that is slow, since all others on the machine are at work too.

A clock cannot: on a busy machine a call of a second may take a minute, and to end the process for it would cost every
episode in it. So a call is judged by what the process does. It hangs when it waits: when through `seconds` on the clock
the process was on a processor for less than a hundredth of them. And it hangs when it goes round in circles: when it
has taken `seconds` of processor time, of which a call takes two at most.

Where the system tells no processor time of other processes (there is no /proc), the clock decides alone.
"""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

LOOKS = 10
"""In `seconds`: a process is ended after so many of them, and one, at most."""
WORKING_SHARE = 0.01
"""A Java process that waits takes a thousandth of a processor; one of 200 that want a processor gets more than this."""


class Watch:
    """Ends a process when a call of it hangs. `over` surrounds each call, of which there is one at a time."""

    def __init__(self, process: subprocess.Popen[bytes], seconds: float) -> None:
        self._process, self._seconds = process, seconds
        self._call: object | None = None
        self._over = threading.Event()
        self.verdict = ""
        """Why the process was ended; empty while it was not."""
        threading.Thread(target=self._look, daemon=True, name="simulator watch").start()

    @contextmanager
    def over(self) -> Iterator[None]:
        """Watch while a call lasts."""
        self._call = object()
        try:
            yield
        finally:
            self._call = None

    def end(self) -> None:
        """Watch no longer."""
        self._over.set()

    def _look(self) -> None:
        pause = self._seconds / LOOKS
        call: object | None = None
        began = moved = idle = 0.0
        looked = time.monotonic()
        while not self._over.wait(pause):
            now, worked = time.monotonic(), processor_seconds(self._process.pid)
            # When this process has slept, or was stopped, the other may have been too.
            passed, looked = min(now - looked, 2 * pause), now
            if self._call is None or self._call is not call:
                call, began, moved, idle = self._call, worked, worked, 0.0
            elif worked - began >= self._seconds:
                return self._give_up(f"worked {self._seconds:g} s on one call")
            elif worked - moved >= WORKING_SHARE * self._seconds:
                moved, idle = worked, 0.0
            elif (idle := idle + passed) >= self._seconds:
                return self._give_up(f"gave no answer within {self._seconds:g} s, in which it hardly worked")

    def _give_up(self, verdict: str) -> None:
        self.verdict = verdict
        self._process.kill()


def processor_seconds(process: int) -> float:
    """How long a process was on a processor so far, all its threads together; 0 where that is not told."""
    try:
        told = Path(f"/proc/{process}/stat").read_text()
    except OSError:  # it has ended, or this system has no such file
        return 0.0
    fields = told.rpartition(")")[2].split()  # a name may hold spaces and brackets
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
