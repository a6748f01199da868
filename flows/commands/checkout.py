"""Restores the code of a recorded run in a fresh folder: a clone at its commit, with its uncommitted diff applied."""

from __future__ import annotations

import subprocess
from pathlib import Path

from turnwise.errors import ConfigurationError
from turnwise.store.digests import digest_of
from turnwise.store.withheld import left_out_of

NONE = "none"


def require_checkout(repository: Path, folder: Path, commit: str, uncommitted: str, diff: str | None) -> None:
    """Raise ConfigurationError, before anything is written, unless the code can be restored exactly.

    Args:
        repository: the repository that the run was made in.
        folder: the folder for the code, which must not exist yet.
        commit: the commit that was checked out then.
        uncommitted: the digest of the diff from that commit, or "none".
        diff: the recorded diff; None where none was recorded.
    """
    if folder.exists():
        raise ConfigurationError(f"a run is reproduced in a fresh folder; {folder} exists: name another, or remove it")
    if commit == NONE:
        raise ConfigurationError(
            "a run can be reproduced when it was made in a Git repository; this one recorded no commit: commit the "
            "project, and run it again"
        )
    if _git(repository, "cat-file", "-e", f"{commit}^{{commit}}").returncode:
        raise ConfigurationError(
            f"the run's commit must be in the repository {repository}; {commit} is not: fetch the branch that holds it"
        )
    found = digest_of(diff) if diff else NONE
    if diff and (left_out := left_out_of(diff)):
        raise ConfigurationError(
            "a run can be reproduced when all of its code is recorded; of its uncommitted changes was left out: "
            f"{left_out}. Check the commit {commit[:12]} out, add what is missing, and run the parameters of its "
            "artifacts.json; commit the code before the next run"
        )
    if found != uncommitted:
        raise ConfigurationError(
            f"the recorded diff must be the one that the run was made with, {uncommitted}; it is {found}: the run's "
            "artifacts in MLflow are damaged or missing"
        )


def check_out(repository: Path, folder: Path, commit: str, diff: str | None) -> None:
    """Write the run's code into the folder. Raises ConfigurationError if a Git command fails."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    _require(_git(repository, "clone", "--quiet", "--no-checkout", str(repository), str(folder)))
    _require(_git(folder, "checkout", "--quiet", "--detach", commit))
    if diff:
        _require(_git(folder, "apply", "--whitespace=nowarn", "-", text=diff))


def _git(folder: Path, *arguments: str, text: str | None = None) -> subprocess.CompletedProcess[bytes]:
    given = None if text is None else text.encode("utf-8", "surrogateescape")
    return subprocess.run(["git", *arguments], cwd=folder, input=given, capture_output=True, check=False)


def _require(answer: subprocess.CompletedProcess[bytes]) -> None:
    if answer.returncode:
        said = answer.stderr.decode("utf-8", "replace").strip()
        raise ConfigurationError(f"git must check the run's code out; {' '.join(answer.args)} answered: {said}")
