"""A run asks nobody outside this machine: no telemetry, no update check, no model hub."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from project_copy import copy_project, environment, run

GUARD = Path(__file__).parent / "network_guard"


def test_the_guard_notices_a_call(tmp_path: Path) -> None:
    log = tmp_path / "network.log"
    ask = "import urllib.request; urllib.request.urlopen('http://example.org', timeout=5)"
    status = subprocess.run(
        [sys.executable, "-c", ask],
        env=environment(tmp_path, PYTHONPATH=str(GUARD), NETWORK_LOG=str(log)),
        capture_output=True,
    )
    assert status.returncode != 0
    assert log.read_text().startswith("example.org by ")


@pytest.mark.engine
@pytest.mark.chain
@pytest.mark.parametrize("command", [("flows.cli", "ablation"), ("dvc", "repro", "prepare")], ids=["turnwise", "dvc"])
def test_a_run_asks_nobody_outside_this_machine(command: tuple[str, ...], tmp_path: Path) -> None:
    folder = copy_project(tmp_path / "project")
    log = tmp_path / "network.log"
    run(folder, *command, PYTHONPATH=f"{GUARD}:{folder}", NETWORK_LOG=str(log))
    assert not log.exists(), log.read_text()
