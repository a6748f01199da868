"""A process is known to have ended as soon as its lock is free, and by its own home alone."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from turnwise.store.process_register import ProcessRegister

ENTERS = """
import os, sys
from turnwise.store.process_register import ProcessRegister
print(ProcessRegister("works").enter(), flush=True)
if "fork" in sys.argv and os.fork() == 0:
    os.close(1)
    while os.getppid() != 1 and sys.stdin.read(1): pass
    os._exit(0)
sys.stdin.read()
"""


def test_a_process_has_one_token_for_as_long_as_it_lives(turnwise_home: Path) -> None:
    register = ProcessRegister("works")
    assert register.own_token is None
    token = register.enter()
    assert register.enter() == register.own_token == token == ProcessRegister("works").own_token
    assert ProcessRegister("others").own_token is None
    with register.ended() as ended:
        assert ended == {}


@pytest.mark.parametrize("fork", ["fork", "none"])
def test_a_killed_process_has_ended_even_if_its_fork_lives_and_is_told_of_once(turnwise_home: Path, fork: str) -> None:
    register = ProcessRegister("works")
    with subprocess.Popen(
        [sys.executable, "-c", ENTERS, fork], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        token = process.stdout.readline().strip()
        with register.ended() as ended:
            assert ended == {}
        os.utime(turnwise_home / "processes" / "works" / token, (5, 5))
        process.send_signal(signal.SIGKILL)
        process.wait()
        with pytest.raises(OSError, match="not yet"), register.ended() as ended:
            raise OSError("not yet")
        with register.ended() as ended:
            assert ended == {token: 5.0}
        with register.ended() as ended:
            assert ended == {}


def test_in_a_copied_home_its_processes_have_ended(
    turnwise_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = ProcessRegister("works").enter()
    shutil.copytree(turnwise_home, tmp_path / "copy")
    monkeypatch.setenv("TURNWISE_HOME", str(tmp_path / "copy"))
    with ProcessRegister("works").ended() as ended:
        assert list(ended) == [token]
