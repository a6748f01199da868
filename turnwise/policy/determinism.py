"""Bit-reproducible computation in torch: a fixed number of threads, deterministic kernels.

Engine and learner share a process, each with its own number of threads, and bit-exact results depend on that number.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from turnwise.own_process import compute_reproducibly


@contextmanager
def computing_threads(threads: int) -> Iterator[None]:
    """Make torch compute with this many CPU threads inside the context. Raises ValueError for fewer than one."""
    if threads < 1:
        raise ValueError(f"the number of threads must be at least 1; found {threads}")
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


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
