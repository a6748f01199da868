"""Set-up takes the Python that there is, and says what is missing where there is none."""

from __future__ import annotations

import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SUPPORTED = ("3.11", "3.12", "3.13")
ANSWERS = "#!/bin/sh\ncase $2 in *version_info*) echo {version} ;; *ensurepip*) exit {without} ;; esac\n"
FAILS = "#!/bin/sh\nexit 127\n"
"""What pyenv has on the PATH for a version that is not installed."""


def looked_for(folder: Path, python: str = "") -> subprocess.CompletedProcess[str]:
    """What requirements/python.sh says where the PATH is a folder alone."""
    return subprocess.run(
        ["/bin/sh", ROOT / "requirements" / "python.sh"],
        env={"PATH": str(folder), **({"PYTHON": python} if python else {})},
        capture_output=True,
        text=True,
    )


def put(folder: Path, name: str, version: str, *, venv: bool = True) -> None:
    (folder / name).write_text(ANSWERS.format(version=version, without=0 if venv else 1))
    (folder / name).chmod(0o755)


@pytest.mark.parametrize("version", SUPPORTED)
def test_whichever_supported_version_is_there_is_taken(version: str, tmp_path: Path) -> None:
    put(tmp_path, f"python{version}", version)
    assert looked_for(tmp_path).stdout.strip() == str(tmp_path / f"python{version}")


def test_the_version_that_results_were_made_with_comes_first_and_a_name_that_does_not_run_is_passed_over(
    tmp_path: Path,
) -> None:
    put(tmp_path, "python3.12", "3.12")
    put(tmp_path, "python3", "3.13")
    assert looked_for(tmp_path).stdout.strip() == str(tmp_path / "python3.12")
    (tmp_path / "python3.11").write_text(FAILS)
    (tmp_path / "python3.11").chmod(0o755)
    assert looked_for(tmp_path).stdout.strip() == str(tmp_path / "python3.12")
    put(tmp_path, "python3.11", "3.11")
    assert looked_for(tmp_path).stdout.strip() == str(tmp_path / "python3.11")


def test_what_was_found_and_what_is_missing_is_said(tmp_path: Path) -> None:
    nothing = looked_for(tmp_path)
    assert (nothing.returncode, nothing.stdout) == (1, "")
    assert "needs Python 3.11, 3.12 or 3.13; found none." in nothing.stderr
    put(tmp_path, "python3", "3.9")
    put(tmp_path, "python3.12", "3.12", venv=False)
    said = looked_for(tmp_path).stderr
    assert "python3, which is 3.9" in said and "Debian's package python3.12-venv" in said


def test_a_python_that_is_named_is_the_only_one_asked(tmp_path: Path) -> None:
    put(tmp_path, "python3.11", "3.11")
    put(tmp_path, "mine", "3.13")
    assert looked_for(tmp_path, "mine").stdout.strip() == str(tmp_path / "mine")
    refused = looked_for(tmp_path, "yours")
    assert refused.returncode == 1 and "found none as PYTHON=yours." in refused.stderr


def test_the_package_supports_what_set_up_takes() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["requires-python"] == ">=3.11,<3.14"
    assert "Python 3.11, 3.12 or 3.13" in (ROOT / "README.md").read_text()
