"""Where an experiment is described, and where what it computes lies."""

from __future__ import annotations

import os
from pathlib import Path

from turnwise.errors import ConfigurationError


def project_root() -> Path:
    """The folder of the experiment: $DVC_ROOT, or the nearest folder at or above the current one with a params.yaml.

    Raises:
        ConfigurationError: there is none.
    """
    if "DVC_ROOT" in os.environ:
        return Path(os.environ["DVC_ROOT"]).resolve()
    here = Path.cwd()
    for folder in (here, *here.parents):
        if (folder / "params.yaml").is_file():
            return folder
    raise ConfigurationError(
        f"an experiment is described by a params.yaml; neither {here} nor a folder above it holds one: "
        "change into the project's folder, or set DVC_ROOT to it"
    )


def home() -> Path:
    """Where everything that is computed lies: $TURNWISE_HOME, or `.turnwise` in the project's root."""
    chosen = os.environ.get("TURNWISE_HOME")
    return Path(chosen).resolve() if chosen else project_root() / ".turnwise"
