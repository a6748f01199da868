"""A command line that cannot be run ends in one message and status 2, before any compute."""

from __future__ import annotations

from pathlib import Path

import pytest

from flows.commands.cli import status_of
from tests.flows.bad_commands import COMMANDS, FILES, Command

ROOT = Path(__file__).parents[2]
LONGEST = 1200
"""Characters of a message that can still be read."""


@pytest.mark.parametrize("case", [*COMMANDS, *FILES], ids=lambda case: " ".join(case.arguments)[:60])
def test_a_bad_command_line_ends_in_one_message_and_status_2(
    case: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("TURNWISE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PREFECT_API_URL", "http://127.0.0.1:9/api")
    assert status_of(case.arguments) == 2
    said = capsys.readouterr().err
    assert case.says in said and "Traceback" not in said and len(said) <= LONGEST
    assert not (tmp_path / "home").exists()
