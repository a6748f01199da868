"""A home that was moved or copied is read where it lies now, and nothing is made where it lay."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from recorded_runs import record, tiny, tracking_uri

from flows.commands.cli import status_of
from turnwise.project import home

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("kept", [False, True], ids=["moved", "copied"])
def test_what_was_recorded_is_shown_and_more_is_recorded_where_the_home_lies_now(
    kept: bool,
    turnwise_home: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(ROOT)
    former, now = home(), tmp_path / "now here"
    record("before", {"plays": 0.5}, (1,), tiny("data.test_tasks=4"))
    (shutil.copytree if kept else shutil.move)(former, now)
    before = {path: path.stat().st_mtime_ns for path in former.rglob("*")}
    monkeypatch.setenv("TURNWISE_HOME", str(now))
    record("after", {"plays": 1.0}, (1,), tiny("data.test_tasks=4"))
    for name in ("before", "after"):
        for command in (("show", name, "--split", "test"), ("compare", name)):
            assert status_of(command) == 0, capsys.readouterr().err
            assert "oracle" in capsys.readouterr().out or command[0] == "show"
    assert status_of(("compare", "before", "after")) == 0
    assert tracking_uri() == f"sqlite:///{now / 'mlflow.db'}"
    assert {path: path.stat().st_mtime_ns for path in former.rglob("*")} == before
