"""What every process that is ours alone begins and ends with, since Python's own ways take seconds there.

    collect_rarely()   first, before anything large is imported
    leave(status)      last, in place of sys.exit

A user's own process, in which the Python interface is used, does neither. What computes is prepared in either
(`compute_reproducibly`). Nothing is done by an import.
"""

from __future__ import annotations

import atexit
import gc
import logging
import os
import sys
from typing import NoReturn

REPRODUCIBLE = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
"""Environment variables that computing needs to repeat, where the user has not set them. cuBLAS reads its own when it
is first used; torch refuses deterministic kernels on a card without it."""

OBJECTS_BETWEEN_COLLECTIONS = (10_000, 20, 50)
"""Python's thresholds of its three generations."""


def compute_reproducibly() -> None:
    """Set the variables that computing needs to repeat. Whatever computes calls this before it first uses a card."""
    for name, value in REPRODUCIBLE.items():
        os.environ.setdefault(name, value)


def collect_rarely() -> None:
    """Look for garbage in cycles less often than Python does.

    The imports of torch, vLLM, Prefect and MLflow leave a million objects, over which Python would go a hundred times
    while they come: 2 of 9 processor seconds.
    """
    gc.set_threshold(*OBJECTS_BETWEEN_COLLECTIONS)
    atexit.register(_end_at_once)  # first, so that all that is registered later is done before


def leave(status: int) -> NoReturn:
    """End the process with this status, as `sys.exit` does, but do not take its modules apart if it `collect_rarely`.

    That would take 1.5 to 3 processor seconds where torch, vLLM and Prefect are imported, and free nothing that the end
    of the process does not free.
    """
    global _status
    _status = status
    sys.exit(status)


_status: int | None = None
"""What `leave` was called with."""


def _end_at_once() -> None:
    """End the process where it stands, once threads have ended and all that is registered for its end is done."""
    if _status is not None:
        logging.shutdown()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(_status)
