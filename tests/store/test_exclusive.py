"""One process computes a result at a time, and one that is killed keeps nobody waiting."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from turnwise.project import home
from turnwise.store.exclusive import exclusive

pytestmark = pytest.mark.usefixtures("turnwise_home")

KEY = "warm_start/0123"


def test_others_wait_and_nothing_is_left_behind() -> None:
    inside: list[str] = []

    def enter(_: int) -> None:
        with exclusive(KEY):
            inside.append("in")
            time.sleep(0.01)
            inside.append("out")

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(enter, range(8)))
    assert inside == ["in", "out"] * 8
    assert list((home() / "computing").iterdir()) == []


def test_the_lock_of_a_killed_process_is_free() -> None:
    code = "import time; from turnwise.store.exclusive import exclusive\n"
    code += f"with exclusive({KEY!r}): print(1, flush=True); time.sleep(600)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == b"1\n"
        holder.send_signal(signal.SIGKILL)
        with exclusive(KEY):
            pass
    assert list((home() / "computing").iterdir()) == []
