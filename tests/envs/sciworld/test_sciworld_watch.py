"""A hanging process is distinguished from a slow one: stand-ins for the simulator's, watched in calls of their own."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from envs.sciworld.watch import Watch, processor_seconds

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processor time is read from /proc")

SECONDS = 1.0
SLOW = """
import time
end = time.monotonic() + 4
while time.monotonic() < end:  # a busy machine lets it work now and then
    slice = time.process_time() + 0.02
    while time.process_time() < slice:
        pass
    time.sleep(0.1)
print("done", flush=True)
time.sleep(600)
"""
HUNG = "import time; time.sleep(600)"
CIRCLES = "while True: pass"


@contextmanager
def watched(script: str) -> Iterator[tuple[subprocess.Popen[bytes], Watch]]:
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as process:
        watch = Watch(process, SECONDS)
        try:
            yield process, watch
        finally:
            watch.end()
            process.kill()


def answer(process: subprocess.Popen[bytes], watch: Watch) -> bytes:
    """What the process says to one call: nothing when it is ended."""
    assert process.stdout is not None
    with watch.over():
        return process.stdout.readline()


def test_a_process_that_works_now_and_then_is_waited_for_long_past_the_limit() -> None:
    with watched(SLOW) as (process, watch):
        began = time.monotonic()
        assert answer(process, watch) == b"done\n"
        assert time.monotonic() - began > 3 * SECONDS
        assert watch.verdict == "" and process.poll() is None


@pytest.mark.parametrize(
    ("script", "verdict"),
    [(HUNG, "gave no answer within 1 s, in which it hardly worked"), (CIRCLES, "worked 1 s on one call")],
)
def test_a_process_that_waits_or_goes_round_in_circles_is_ended(script: str, verdict: str) -> None:
    with watched(script) as (process, watch):
        assert answer(process, watch) == b""
        assert watch.verdict == verdict
        assert process.wait() == -9


def test_between_calls_a_process_may_wait_and_each_call_is_judged_by_itself() -> None:
    with watched(HUNG) as (process, watch):
        for _ in range(10):
            with watch.over():
                time.sleep(0.2 * SECONDS)
        time.sleep(2 * SECONDS)
        assert process.poll() is None and watch.verdict == ""


def test_processor_time_is_that_of_the_process() -> None:
    with watched(CIRCLES) as (process, _):
        before = processor_seconds(process.pid)
        while processor_seconds(process.pid) < before + 0.2:
            time.sleep(0.01)
    assert processor_seconds(process.pid) == 0.0  # it is no more
