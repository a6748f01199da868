"""Bit-reproducible computation in torch: a fixed number of threads, deterministic kernels."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from turnwise.own_process import compute_reproducibly
from turnwise.policy.threads import computing_threads


@contextmanager
def reproducible_computing(threads: int) -> Iterator[None]:
    """Make torch compute with this many CPU threads and deterministic kernels inside the context.

    Afterwards both settings are as before, since the engine shares the process.
    """
    compute_reproducibly()
    deterministic = torch.are_deterministic_algorithms_enabled()
    settings: Any = torch.utils.deterministic
    filling = settings.fill_uninitialized_memory
    torch.use_deterministic_algorithms(True)
    # Deterministic mode would fill every new tensor, which costs time; nothing here reads memory before writing it.
    settings.fill_uninitialized_memory = False
    try:
        with computing_threads(threads):
            yield
    finally:
        torch.use_deterministic_algorithms(deterministic)
        settings.fill_uninitialized_memory = filling
