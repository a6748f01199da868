"""The number of CPU threads that torch computes with, set temporarily.

Engine and learner share a process, each with its own number of threads, and bit-exact results depend on that number.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


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
