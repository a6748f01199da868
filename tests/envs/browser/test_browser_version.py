"""The browser's version is part of what a world of pages depends on, and where the browser lies is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from envs.browser import Browser
from envs.browser.chromium import version_of


def program(folder: Path, script: str) -> str:
    """Something that can be started in place of a browser."""
    folder.mkdir()
    path = folder / "chromium"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def test_the_version_is_what_the_browser_says(tmp_path: Path) -> None:
    old, same, new = (
        program(tmp_path / name, f'test "$1" = --version && echo "Chromium {version} "')
        for name, version in (("a", "140.0"), ("b", "140.0"), ("c", "141.0"))
    )
    states = [Browser.state({"executable": executable}) for executable in (old, same, new)]
    assert states == [{"browser": "Chromium 140.0"}, {"browser": "Chromium 140.0"}, {"browser": "Chromium 141.0"}]
    assert Browser.files({"executable": old}) == {"executable": None}


def test_a_program_that_tells_no_version_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="a Chromium that tells its --version"):
        version_of(program(tmp_path / "other", "echo no >&2; exit 1"))
