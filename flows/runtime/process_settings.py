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

PRODUCTS = {"ONEDNN_PRIMITIVE_CACHE_CAPACITY": "128", "LRU_CACHE_CAPACITY": "128"}
"""How many matrix products in bfloat16 oneDNN, and torch in each thread, keep ready for the next of the same shape. One
takes some 300 KiB in each of the two. Micro-batches have ever new shapes: with the default of both, 1,024, a process
that trains 135 million parameters grew by 0.4 GiB with every run of five updates."""


def prepare_process() -> None:
    """Set these variables. To have an effect it must come before the libraries that read them are imported.

    Importing a module of ours sets none: commands, functions of the Python interface and workers call this.
    """
    for name, value in {**OFFLINE, **QUIET, **THREADS, **PRODUCTS}.items():
        os.environ.setdefault(name, value)
    compute_reproducibly()
