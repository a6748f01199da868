"""The peak of a computation's memory.

It is that of the memory that torch allocated on CUDA, and of the process's resident memory on the CPU: there it is that
of the process's whole life, an engine and other stages included, and cannot be reset.
"""

from __future__ import annotations

import resource
import sys

import torch


def forget_peak_memory(device: str) -> None:
    """Reset the peak on a CUDA device; on the CPU this does nothing."""
    if torch.device(device).type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)


def peak_memory_bytes(device: str) -> int:
    """The peak in bytes since `forget_peak_memory`; on the CPU since the process started."""
    if torch.device(device).type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return resident if sys.platform == "darwin" else resident * 1024  # Linux counts in KiB, macOS in bytes
