"""A run asks nobody outside this machine: no telemetry, no update check, no model hub.

Here with a Prefect server of its own; `test_readme` and `test_dvc` watch every command of theirs in the same way.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from project_copy import asked_outside, copy_project, environment, guarded, run

from flows.server import stop_server


def test_the_guard_notices_a_call(tmp_path: Path) -> None:
    ask = "import urllib.request; urllib.request.urlopen('http://example.org', timeout=5)"
    asked = subprocess.run(
        [sys.executable, "-c", ask], env=environment(tmp_path, **guarded(tmp_path)), capture_output=True
    )
    assert asked.returncode != 0
    assert asked_outside(tmp_path).startswith("example.org by ")


@pytest.mark.chain
def test_a_run_asks_nobody_outside_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = copy_project(tmp_path / "project")
    run(folder, "flows.cli", "prepare", **guarded(folder), PREFECT_API_URL="", PREFECT_HOME="")
    monkeypatch.setenv("TURNWISE_HOME", str(folder / ".turnwise"))
    stop_server()
    assert (folder / ".turnwise" / "prefect" / "server.log").exists(), "the server was watched, too"
    assert asked_outside(folder) == ""
