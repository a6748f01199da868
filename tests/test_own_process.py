"""What a process of ours begins and ends with."""

from __future__ import annotations

import subprocess
import sys

from turnwise.own_process import OBJECTS_BETWEEN_COLLECTIONS

ENDS = """
import atexit, gc, sys, threading, time
from turnwise.own_process import collect_rarely, leave

class TakenApart:
    def __del__(self):
        print("taken apart", flush=True)

collect_rarely()
left = TakenApart()
atexit.register(print, "registered for the end")
threading.Thread(target=lambda: (time.sleep(0.2), print("a thread has ended"))).start()
print(gc.get_threshold())
sys.stderr.write("an error")
leave(3)
"""


def test_a_process_that_leaves_ends_its_threads_and_does_what_is_registered_and_takes_nothing_apart() -> None:
    ended = subprocess.run([sys.executable, "-c", ENDS], capture_output=True, text=True)
    assert ended.returncode == 3
    said = [str(OBJECTS_BETWEEN_COLLECTIONS), "a thread has ended", "registered for the end"]
    assert (ended.stdout.splitlines(), ended.stderr) == (said, "an error")
