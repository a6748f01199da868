"""In a database that projects share, a command says whose a run is that it has nothing of."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from recorded_runs import record, tiny, tracking_uri

from flows.commands.cli import status_of
from turnwise.project import home

ROOT = Path(__file__).parents[2]
COMMANDS = (
    ("show", "shared", "--split", "test"),
    ("compare", "shared"),
    ("lineage", "plays/success", "--of", "shared"),
    ("export", "plays seed 1", "--to", "policy"),
)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_a_run_of_another_project_is_told_by_its_home_unless_it_is_held_here(
    command: tuple[str, ...],
    turnwise_home: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(ROOT)
    record("shared", {"plays": 0.5}, (1,), tiny("data.test_tasks=4"))
    other, uri, here = home(), tracking_uri(), tmp_path / "here"
    monkeypatch.setenv("TURNWISE_HOME", str(here))
    arguments = [str(tmp_path / part) if part == "policy" else part for part in command]
    assert status_of([*arguments, "--tracking", uri]) == 2
    *_, said = capsys.readouterr().err.splitlines()
    assert f"shared/plays seed 1 was recorded from {other}, and {here} does not hold it" in said
    shutil.copytree(other / "store", here / "store")
    status_of([*arguments, "--tracking", uri])
    assert "was recorded from" not in capsys.readouterr().err
