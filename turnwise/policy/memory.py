"""The most memory that a computation held: on CUDA what torch allocated, on the CPU what the process had resident.

The process's peak is that of its whole life, an engine and other stages included, and never falls.
"""

from __future__ import annotations

import resource
import sys

import torch


def forget_peak_memory(device: str) -> None:
    """Begin to measure. On the CPU there is no way to."""
    if torch.device(device).type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)


def peak_memory_bytes(device: str) -> int:
    """The peak since `forget_peak_memory`; on the CPU since the process began."""
    if torch.device(device).type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return resident if sys.platform == "darwin" else resident * 1024
