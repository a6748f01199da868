"""`turnwise reproduce` in a copy of the project: the run is made again from its commit, its diff and its parameters."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from project_copy import copy_project, git, run

from turnwise.errors import ConfigurationError

pytestmark = [pytest.mark.engine, pytest.mark.chain]


def test_a_run_with_uncommitted_changes_is_made_again_to_the_bit_though_the_project_has_moved_on(
    prefect_server: str, tmp_path: Path
) -> None:
    project = copy_project(tmp_path / "project", drawn=False)
    server = {"PREFECT_API_URL": prefect_server}
    changed = project / "turnwise" / "credit" / "group_relative.py"
    with changed.open("a") as file:
        file.write("\nUNCOMMITTED = True\n")
    settings = ["-s", "optimization.iterations=1", "-s", "warm_start.maximum_steps=10"]
    run(project, "flows.commands.cli", "experiment", "--variant", "mt-grpo", "--seed", "1", *settings, **server)
    # The project moves on: other code, other parameters.
    git(project, "checkout", "--", "turnwise")
    parameters = (project / "params.yaml").read_text()
    (project / "params.yaml").write_text(parameters.replace("initial_deviation: 0.08", "initial_deviation: 0.02"))

    folder = tmp_path / "again"
    told = run(project, "flows.commands.cli", "reproduce", "mt-grpo seed 1", "--into", str(folder), **server)
    assert "and its diff in" in told and "mt-grpo seed 1: equal, all " in told, told
    assert "UNCOMMITTED" in (folder / "turnwise" / "credit" / "group_relative.py").read_text()
    refused = run(
        project, "flows.commands.cli", "reproduce", "mt-grpo seed 1", "--into", str(folder), expected=2, **server
    )
    assert "fresh folder" in refused


def test_code_that_cannot_be_had_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    from turnwise.records.reproduction import check_out, require_checkout
    from turnwise.store.digests import digest_of

    repository, folder = tmp_path / "repository", tmp_path / "folder"
    repository.mkdir()
    git(repository, "init", "--quiet")
    (repository / "code.py").write_text("a = 1\n")
    git(repository, "add", "--all")
    git(repository, "commit", "--quiet", "--message", "state")
    commit = git(repository, "rev-parse", "HEAD").strip()
    (repository / "code.py").write_text("a = 2\n")
    diff = git(repository, "diff", "HEAD")
    for arguments, expected in (
        ((folder, "none", "none", None), "recorded no commit"),
        ((folder, "0" * 40, "none", None), "must be in the repository"),
        ((folder, commit, digest_of(diff), None), "damaged or missing"),
        ((folder, commit, digest_of(diff), diff + "\n"), "damaged or missing"),
        ((folder, commit, digest_of(diff), "# Left out: new.py (a new file)\n" + diff), "was left out: new.py"),
        ((repository, commit, "none", None), "fresh folder"),
    ):
        with pytest.raises(ConfigurationError, match=expected):
            require_checkout(repository, *arguments)
        assert not folder.exists()
    require_checkout(repository, folder, commit, digest_of(diff), diff)
    check_out(repository, folder, commit, diff)
    assert (folder / "code.py").read_text() == "a = 2\n"
    assert os.path.isdir(folder / ".git")
