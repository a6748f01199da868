"""Watchdog that tells a process that hangs from one that is slow because the machine is busy.

A wall clock cannot tell: on a busy machine a call of a second may take a minute, and ending the process for it would
cost every episode in it. So a call is judged by the process's CPU time. The process hangs if it waits: if in `seconds`
of wall time it used a CPU for less than a hundredth of them. And it hangs if it loops: if one call has used `seconds`
of CPU time, where a normal call uses two at most.

Where the system does not report the CPU time of other processes (there is no /proc), the wall clock alone decides.
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
"""Number of checks in `seconds`: a process is ended after this many checks, plus at most one."""
WORKING_SHARE = 0.01
"""A waiting Java process uses a thousandth of a CPU; one that competes with 200 for a CPU gets more than this share."""


class Watch:
    """Ends a process when one of its calls hangs. Wrap each call in `over`; there is one call at a time."""

    def __init__(self, process: subprocess.Popen[bytes], seconds: float) -> None:
        self._process, self._seconds = process, seconds
        self._call: object | None = None
        self._over = threading.Event()
        self.verdict = ""
        """Reason why the process was ended; empty while it was not."""
        threading.Thread(target=self._look, daemon=True, name="simulator watch").start()

    @contextmanager
    def over(self) -> Iterator[None]:
        """Watch for the duration of a call."""
        self._call = object()
        try:
            yield
        finally:
            self._call = None

    def end(self) -> None:
        """Stop watching."""
        self._over.set()

    def _look(self) -> None:
        pause = self._seconds / LOOKS
        call: object | None = None
        began = moved = idle = 0.0
        last_look = time.monotonic()
        while not self._over.wait(pause):
            now, worked = time.monotonic(), processor_seconds(self._process.pid)
            # If this process was asleep or stopped, the other may have been too, so a long pause counts as two at most.
            elapsed, last_look = min(now - last_look, 2 * pause), now
            if self._call is None or self._call is not call:
                call, began, moved, idle = self._call, worked, worked, 0.0
            elif worked - began >= self._seconds:
                return self._give_up(f"worked {self._seconds:g} s on one call")
            elif worked - moved >= WORKING_SHARE * self._seconds:
                moved, idle = worked, 0.0
            elif (idle := idle + elapsed) >= self._seconds:
                return self._give_up(f"gave no answer within {self._seconds:g} s, in which it hardly worked")

    def _give_up(self, verdict: str) -> None:
        self.verdict = verdict
        self._process.kill()


def processor_seconds(process: int) -> float:
    """CPU seconds of a process so far, over all its threads; 0 where the system does not report them."""
    try:
        status = Path(f"/proc/{process}/stat").read_text(encoding="utf-8")
    except OSError:  # it has ended, or this system has no such file
        return 0.0
    fields = status.rpartition(")")[2].split()  # a name may hold spaces and brackets
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
