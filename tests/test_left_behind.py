"""What holds of every file of tests, that it leaves nothing behind, is looked for as it should be."""

from __future__ import annotations

import os
import subprocess
import threading

import pytest

from tests import left_behind
from tests.left_behind import Running


def test_what_goes_on_is_found_and_what_has_ended_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(left_behind, "SECONDS_TO_END", 0.0)
    before, goes_on = Running.now(), threading.Event()
    thread = threading.Thread(target=goes_on.wait, name="a forgotten one")
    thread.start()
    process = subprocess.Popen(["sleep", "600"])
    try:
        assert sorted(before.left_by()) == ["the process 'sleep 600 '", "the thread 'a forgotten one'"]
        assert Running.now().left_by() == [], "it was there before"
    finally:
        goes_on.set()
        thread.join()
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert before.left_by() == [], "the process has ended, though nobody has asked how"
    process.wait()


def test_what_serves_the_whole_process_may_go_on() -> None:
    before, goes_on = Running.now(), threading.Event()
    thread = threading.Thread(target=goes_on.wait, name="fsspecIO")
    thread.start()
    assert before.left_by() == []
    goes_on.set()
    thread.join()
