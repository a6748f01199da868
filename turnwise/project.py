"""Paths: the project's root, which holds params.yaml, and the home, which holds everything computed.

Both are found from the current working directory, or within `one_project` from that in which the block began: a world
may change the directory of its process while it is played.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from turnwise.errors import ConfigurationError

_begun_in: list[Path] = []
"""The working directory in which the outermost `one_project` of this process began; empty outside of any."""


@contextmanager
def one_project() -> Iterator[None]:
    """Have the block work on one project from its beginning to its end, whatever changes the working directory.

    Within another such block it changes nothing. It holds for all threads, as the working directory does.
    """
    if _begun_in:
        yield
        return
    _begun_in.append(Path.cwd())
    try:
        yield
    finally:
        _begun_in.clear()


def start_folder() -> Path:
    """The folder from which relative paths are read: see `one_project`."""
    return _begun_in[0] if _begun_in else Path.cwd()


def project_root() -> Path:
    """The project's root: $DVC_ROOT, or the nearest folder at or above the current one that holds a params.yaml.

    Raises:
        ConfigurationError: no such folder exists.
    """
    if "DVC_ROOT" in os.environ:
        return (start_folder() / os.environ["DVC_ROOT"]).resolve()
    here = start_folder()
    for folder in (here, *here.parents):
        if (folder / "params.yaml").is_file():
            return folder
    raise ConfigurationError(
        f"an experiment is described by a params.yaml; neither {here} nor a folder above it holds one: "
        "change into the project's folder, set DVC_ROOT to it, or make one with `turnwise init FOLDER`",
        "TW-no-project",
    )


def home() -> Path:
    """The folder of everything that is computed: $TURNWISE_HOME, or `.turnwise` in the project's root.

    Raises ConfigurationError as `project_root` does.
    """
    folder = os.environ.get("TURNWISE_HOME")
    return _resolve(folder, str(start_folder())) if folder else project_root() / ".turnwise"


@cache  # asked for dozens of times an iteration
def _resolve(path: str, folder: str) -> Path:
    return Path(folder, path).resolve()
