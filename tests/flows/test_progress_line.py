"""The line that shows how far a command is: on a terminal while it lasts, in a log now and then."""

import re
import sys
import time

import pytest

from flows.commands import progress_line
from flows.commands.progress_line import showing_progress
from turnwise import progress


def work(seconds: float = 0.3) -> None:
    for item in progress.each("check 2 of 5: splits", list(range(4))):
        time.sleep(seconds if item == 2 else 0.0)


def test_on_a_terminal_it_shows_what_is_done_and_the_time_that_is_left(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setattr(progress_line, "SHOWN_AFTER_SECONDS", 0.0)
    with showing_progress():
        time.sleep(0.2)
        work()
    printed = capsys.readouterr()
    assert "check 2 of 5: splits" in printed.err and re.search(r"2 of 4, about \d+ s left", printed.err)
    assert printed.out == ""


def test_on_a_terminal_it_says_what_work_is_that_reports_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setattr(progress_line, "SHOWN_AFTER_SECONDS", 0.0)
    with showing_progress("reading what the runs have recorded"):
        time.sleep(0.2)
    assert "reading what the runs have recorded" in capsys.readouterr().err


def test_work_that_is_done_at_once_shows_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setattr(progress_line, "SHOWN_AFTER_SECONDS", 60.0)
    with showing_progress():
        work(0.0)
    assert "splits" not in capsys.readouterr().err


def test_a_log_gets_a_line_now_and_then(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(progress_line, "SECONDS_BETWEEN_LINES", 0.1)
    with showing_progress():
        work()
    assert re.fullmatch(r"check 2 of 5: splits  3 of 4, about \d+ s left", capsys.readouterr().err.splitlines()[-1])


def test_what_is_printed_meanwhile_goes_where_it_went_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setattr(progress_line, "SHOWN_AFTER_SECONDS", 0.0)
    streams = sys.stdout, sys.stderr
    with showing_progress():
        time.sleep(0.2)
        assert (sys.stdout, sys.stderr) == streams
