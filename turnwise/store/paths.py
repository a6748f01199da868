"""Paths: the project's root, which holds params.yaml, and the home, which holds everything computed."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

from turnwise.errors import ConfigurationError


def project_root() -> Path:
    """The project's root: $DVC_ROOT, or the nearest folder at or above the current one that holds a params.yaml.

    Raises:
        ConfigurationError: no such folder exists.
    """
    if "DVC_ROOT" in os.environ:
        return Path(os.environ["DVC_ROOT"]).resolve()
    here = Path.cwd()
    for folder in (here, *here.parents):
        if (folder / "params.yaml").is_file():
            return folder
    raise ConfigurationError(
        f"an experiment is described by a params.yaml; neither {here} nor a folder above it holds one: "
        "change into the project's folder, set DVC_ROOT to it, or make one with `turnwise init FOLDER`"
    )


def home() -> Path:
    """The folder of everything that is computed: $TURNWISE_HOME, or `.turnwise` in the project's root.

    Raises ConfigurationError as `project_root` does.
    """
    chosen = os.environ.get("TURNWISE_HOME")
    return _resolved(chosen, os.getcwd()) if chosen else project_root() / ".turnwise"


@cache  # asked for dozens of times an iteration
def _resolved(path: str, folder: str) -> Path:
    return Path(folder, path).resolve()
