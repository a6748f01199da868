"""Copies of the project in which tests run commands as a user would: a Git repository of its own, tiny parameters."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import IO

from ruamel.yaml import YAML

from turnwise.experiment import load

ROOT = Path(__file__).parents[2]
TINY = Path(__file__).parent / "tiny.yaml"
GUARD = Path(__file__).parent / "network_guard"
LEFT_OUT = ("tests", "data", "models", "runs", "results", "dvc.lock")
"""What no stage reads, and what a run of the stages makes: a copy begins without results."""
UNDRAWN = """

def _drawn(report: ReportData) -> dict[str, bytes]:
    return {PAGE_FILE: b"This page was not drawn."}
"""
MLFLOW_PLACES = (
    ("experiments", "artifact_location"),
    ("runs", "artifact_uri"),
    ("logged_models", "artifact_location"),
)
"""Tables and columns in which MLflow keeps where files lie."""


def copy_project(folder: Path, *overlays: Path, drawn: bool = True) -> Path:
    """A fresh clone of the working tree, with the tiny parameters, and these overlays on them, as its params.yaml.

    It shares the environment. Where nothing is `drawn`, its code writes a page of one line, and no figures: to draw
    them takes three seconds of each command.
    """
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    for name in listed.rstrip("\0").split("\0"):
        if name.split("/")[0] not in LEFT_OUT and (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            # With their times: of files as new as its index Git would read all for every question.
            shutil.copy2(ROOT / name, folder / name)
    if not drawn:
        with (folder / "turnwise" / "reporting" / "html" / "report_files.py").open("a") as file:
            file.write(UNDRAWN)
    with (folder / "params.yaml").open("w") as file:
        YAML().dump(load(ROOT / "params.yaml", [TINY, *overlays]).model_dump(mode="json"), file)
    (folder / ".venv").symlink_to(sys.prefix)
    git(folder, "init", "--quiet")
    (folder / ".git" / "info" / "exclude").write_text(".venv\n")
    commit_all(folder)
    return folder


def copy_home(home: Path, to: Path) -> None:
    """A copy of a home whose MLflow database names the copy's files, so that nothing recorded there changes `home`."""
    shutil.copytree(home, to)
    with closing(sqlite3.connect(to / "mlflow.db")) as database, database:
        for table, column in MLFLOW_PLACES:
            database.execute(f"UPDATE {table} SET {column} = replace({column}, ?, ?)", (str(home), str(to)))


def commit_all(folder: Path) -> None:
    """Commit everything that is not ignored."""
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "state")


def git(folder: Path, *arguments: str) -> str:
    """What git answers. Raises CalledProcessError when it fails."""
    answer = subprocess.run(
        ["git", *arguments], cwd=folder, env=environment(folder), check=True, capture_output=True, text=True
    )
    return answer.stdout


def environment(folder: Path, **variables: str) -> dict[str, str]:
    """The variables of a command in a copy: nothing of the user's configuration, nor of an outer run or test."""
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("DVC_", "GIT_", "MLFLOW_", "TURNWISE_")) and name != "PYTHONDONTWRITEBYTECODE"
    }
    person = {f"GIT_{role}_{what}": "test@localhost" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    elsewhere = folder.parent / "configuration"
    places = {f"DVC_{name}": str(elsewhere) for name in ("SITE_CACHE_DIR", "GLOBAL_CONFIG_DIR", "SYSTEM_CONFIG_DIR")}
    return {**inherited, **person, **places, "GIT_CONFIG_GLOBAL": os.devnull, "DVC_NO_ANALYTICS": "1", **variables}


def guarded(folder: Path) -> dict[str, str]:
    """Variables under which Python processes are refused to talk to others than this machine: see `asked_outside`."""
    return {"PYTHONPATH": f"{GUARD}:{folder}", "NETWORK_LOG": str(_network_log(folder))}


def asked_outside(folder: Path) -> str:
    """Whom guarded commands of a copy wanted to talk to outside this machine, a line each; empty if nobody."""
    log = _network_log(folder)
    return log.read_text() if log.exists() else ""


def _network_log(folder: Path) -> Path:
    return folder.parent / f"{folder.name}-network.log"


def start(folder: Path, *command: str, output: IO[str], **variables: str) -> subprocess.Popen[str]:
    """Start a Python module in a copy; it leads a process group, and what it says goes to a file, not to a pipe."""
    return subprocess.Popen(
        [sys.executable, "-m", *command],
        cwd=folder,
        env=environment(folder, **variables),
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        text=True,
    )


def run(folder: Path, *command: str, expected: int = 0, **variables: str) -> str:
    """What a Python module says that is run in a copy; it must end with the expected status."""
    path = _said_in(folder, command)
    with path.open("w") as output:
        status = start(folder, *command, output=output, **variables).wait()
    said = path.read_text()
    assert status == expected, said
    return said


def _said_in(folder: Path, command: tuple[str, ...]) -> Path:
    return folder.parent / f"{folder.name}-{'-'.join(command[:2])}.log"


@contextmanager
def importing(folder: Path, *modules: str, **variables: str) -> Iterator[Callable[..., str]]:
    """What runs Python modules in a copy as `run` does, forked from one process that has imported these modules."""
    process = subprocess.Popen(
        [sys.executable, Path(__file__).with_name("forked_commands.py"), *modules],
        cwd=folder,
        env=environment(folder, **variables),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None and process.stdout is not None
    lines, answers = process.stdin, process.stdout

    def run_forked(*command: str, expected: int = 0) -> str:
        path = _said_in(folder, command)
        lines.write(json.dumps([str(path), *command]) + "\n")
        lines.flush()
        status = int(answers.readline())
        said = path.read_text()
        assert status == expected, said
        return said

    with process:
        yield run_forked
        lines.close()
