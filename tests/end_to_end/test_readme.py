"""Every command of the README and of the first page of the documentation is run, in a copy of the project.

Its default experiment is tiny there.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from project_copy import ROOT, TINY, asked_outside, copy_project, environment, guarded

pytestmark = [pytest.mark.engine, pytest.mark.chain]

PAGES = (ROOT / "README.md", ROOT / "docs" / "index.md")
TINY_SEARCH = TINY.with_name("tiny_search.yaml")
SERVERS = {
    "make ui": "http://127.0.0.1:5000/health",
    ".venv/bin/turnwise ui": "http://127.0.0.1:5000/health",
    ".venv/bin/turnwise serve": "http://127.0.0.1:8600/v2/health",
}
"""Commands that serve until they are stopped, and where one sees that they do."""
ELSEWHERE = {
    "make test": "this very test is run by it",
    "make demo LM=smollm2": "it takes 36 minutes; test_smollm2_overlays.py plans it, test_smollm2.py runs its model",
    "make repro": "it is `dvc repro`, which test_dvc.py runs in a copy",
    ".venv/bin/turnwise ablation clips.yaml": "its dry run is run, and test_chain.py runs ablations",
}
"""Commands that are not run, and why."""


def blocks() -> list[tuple[str, str]]:
    """The blocks of code of the pages, in their order: what stands after the first fence, and the text."""
    pages = "\n".join(page.read_text() for page in PAGES)
    return re.findall(r"^```([^\n]*)\n(.*?)^```$", pages, flags=re.MULTILINE | re.DOTALL)


def commands() -> list[str]:
    """The lines of the blocks that have no language: what a reader types, without comments."""
    typed = [block for language, block in blocks() if not language]
    lines = [re.sub(r"\s+#.*$", "", line) for block in typed for line in block.splitlines()]
    return list(dict.fromkeys(line for line in lines if line))


def test_the_readme_names_commands() -> None:
    assert {"make demo", "make test", ".venv/bin/turnwise ablation clips.yaml"} <= set(commands())
    assert set(ELSEWHERE) <= set(commands())


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory, prefect_server: str) -> Iterator[Path]:
    """One copy for all commands, so that what one has computed the next one finds, as a reader would."""
    folder = copy_project(tmp_path_factory.mktemp("readme") / "project", TINY_SEARCH)
    parameters = folder / "params.yaml"
    parameters.write_text(parameters.read_text().replace("name: tiny", "name: credit"))
    # The overlay would bring back the size of a real run.
    (folder / "experiments" / "frozen_lake.yaml").write_text(
        TINY.read_text().replace("name: tiny", "name: frozen_lake").replace("iterations: 2", "iterations: 1")
    )
    # What a page lets its reader write into a file.
    for language, text in blocks():
        if title := re.search(r'title="([\w.]+)"', language):
            (folder / title[1]).write_text(text)
    yield folder


@pytest.mark.in_order("what one command has made the next one reads, as on the page")
@pytest.mark.parametrize("command", [each for each in commands() if each not in ELSEWHERE])
def test_the_command_does_what_it_says(command: str, project: Path) -> None:
    server = next((address for start, address in SERVERS.items() if command.startswith(start)), None)
    typed = shlex.split(command)
    if typed[0] == "make":
        typed[1:1] = ["--old-file=.venv/ready"]  # the environment is shared, and newer files do not change it
    output = project.parent / "output"
    with output.open("wb") as said:
        running = subprocess.Popen(
            typed,
            cwd=project,
            env=environment(project, **guarded(project)),
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            start_new_session=True,
        )
        try:
            if server is not None:
                wait_for(server, running, output)
            else:
                assert running.wait(timeout=500) == 0, output.read_text()
        finally:
            if running.poll() is None:
                os.killpg(running.pid, signal.SIGKILL)
                running.wait()
    assert "Traceback" not in output.read_text()
    assert asked_outside(project) == ""


def wait_for(address: str, running: subprocess.Popen[bytes], output: Path) -> None:
    """Until the address answers; fails when the server ends before."""
    deadline = time.monotonic() + 500
    while time.monotonic() < deadline:
        assert running.poll() is None, output.read_text()
        try:
            with urllib.request.urlopen(address, timeout=5):
                return
        except urllib.error.URLError:
            time.sleep(0.5)
    raise AssertionError(f"{address} did not answer; the server said: {output.read_text()}")
