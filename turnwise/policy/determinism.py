"""Computing that is a function of its inputs, to the bit: fixed threads, deterministic kernels."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from turnwise.policy.threads import computing_threads


@contextmanager
def reproducible_computing(threads: int) -> Iterator[None]:
    """Inside, torch computes with this many threads and deterministic kernels; as it was outside, since the engine
    shares the process.
    """
    deterministic = torch.are_deterministic_algorithms_enabled()
    settings: Any = torch.utils.deterministic
    filling = settings.fill_uninitialized_memory
    torch.use_deterministic_algorithms(True)
    # It would write over every fresh tensor; nothing here reads what it has not written.
    settings.fill_uninitialized_memory = False
    try:
        with computing_threads(threads):
            yield
    finally:
        torch.use_deterministic_algorithms(deterministic)
        settings.fill_uninitialized_memory = filling
