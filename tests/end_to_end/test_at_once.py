"""Commands that are started at once on one empty home: none waits for the user to try again."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from pathlib import Path

import pytest
from comparison import Computed
from project_copy import copy_project, start

pytestmark = [pytest.mark.chain, pytest.mark.usefixtures("prefect_server")]


def test_two_first_ablations_of_a_home_that_begin_at_once_both_end_right(
    tiny_ablation: Computed, tmp_path: Path
) -> None:
    project = copy_project(tmp_path / "project", drawn=False)
    with contextlib.ExitStack() as files:
        said = [files.enter_context((tmp_path / f"{number}.log").open("w+")) for number in range(2)]
        begun = [start(project, "flows.commands.cli", "ablation", output=log) for log in said]
        ended = [process.wait() for process in begun]
        for status, log in zip(ended, said, strict=True):
            log.seek(0)
            assert status == 0, log.read()
    expected = json.loads((tiny_ablation.results / "digests.json").read_text())
    assert json.loads((project / "results" / "tiny" / "digests.json").read_text()) == expected
    with contextlib.closing(sqlite3.connect(project / ".turnwise" / "mlflow.db")) as database:
        assert database.execute("pragma integrity_check").fetchall() == [("ok",)]
        runs = database.execute("select name, status from runs where lifecycle_stage = 'active'").fetchall()
        assert sorted(runs) == [(name, "FINISHED") for name in ("grpo-or seed 1", "mt-grpo seed 1", "tiny")]
        twice = database.execute("select key from metrics group by run_uuid, key, step having count(*) > 1").fetchall()
        assert twice == [], "each number once"
