"""A run asks nobody outside this machine: no telemetry, no update check, no model hub.

`test_readme` and `test_dvc` watch every command of theirs, and the fixture `prefect_server` the server of all tests, by
one guard. Here: that the guard notices, and that it stands where the server runs.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from project_copy import GUARD, asked_outside, environment, guarded


def test_the_guard_notices_a_call(tmp_path: Path) -> None:
    ask = "import urllib.request; urllib.request.urlopen('http://example.org', timeout=5)"
    asked = subprocess.run(
        [sys.executable, "-c", ask], env=environment(tmp_path, **guarded(tmp_path)), capture_output=True
    )
    assert asked.returncode != 0
    assert asked_outside(tmp_path).startswith("example.org by ")


def test_prefects_server_is_watched_as_well(prefect_server: str) -> None:
    # What it is found to have asked for fails the fixture, when the last test is over.
    arguments = {file.parent: file.read_bytes().split(b"\0") for file in Path("/proc").glob("[0-9]*/cmdline")}
    servers = {process: each[-3] for process, each in arguments.items() if b"flows.runtime.server" in each}
    (command,) = [
        process
        for process, folder in servers.items()
        if prefect_server in (Path(os.fsdecode(folder)) / "server.json").read_text(encoding="utf-8")
    ]
    variables = (command / "environ").read_bytes().split(b"\0")
    places = next(each for each in variables if each.startswith(b"PYTHONPATH=")).partition(b"=")[2].split(b":")
    assert os.fsencode(GUARD) in places
