"""Environment variables that every process of ours starts with, unless the user has set them otherwise."""

from __future__ import annotations

import os

from turnwise.own_process import compute_reproducibly

OFFLINE = {
    "DO_NOT_TRACK": "true",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "DVC_NO_ANALYTICS": "1",
    "VLLM_NO_USAGE_STATS": "1",
}
"""Environment variables that turn off telemetry."""
QUIET = {"HF_HUB_DISABLE_PROGRESS_BARS": "1", "TQDM_DISABLE": "1"}
"""Environment variables that turn off the progress bars of libraries, which would stand between the lines of ours."""
THREADS = {"OMP_WAIT_POLICY": "PASSIVE", "TOKENIZERS_PARALLELISM": "false"}
"""Threads that spin while they wait slow each other down, tenfold was seen, when anything else uses the cores."""


def prepare_process() -> None:
    """Set these variables. To have an effect it must come before the libraries that read them are imported.

    Importing a module of ours sets none: commands, functions of the Python interface and workers call this.
    """
    for name, value in {**OFFLINE, **QUIET, **THREADS}.items():
        os.environ.setdefault(name, value)
    compute_reproducibly()
