"""How many CPU threads torch computes with: set for a while, put back after.

Engine and learner share a process, each with a number of its own, and results depend on it to the bit.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def computing_threads(threads: int) -> Iterator[None]:
    """Torch computes with this many threads inside. Raises ValueError for fewer than one."""
    if threads < 1:
        raise ValueError(f"the number of threads must be at least 1; found {threads}")
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)
