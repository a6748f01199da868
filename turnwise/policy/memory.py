"""The memory of a computation: its peak, and what becomes of what torch frees.

The peak is that of the memory that torch allocated on CUDA, and of the process's resident memory on the CPU: there it
is that of the process's whole life, an engine and other stages included, and cannot be reset.
"""

from __future__ import annotations

import ctypes
import resource
import sys

import torch

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""The numbers of these options of glibc's `mallopt`."""
KEPT_BYTES = 2**30


def keep_freed_memory() -> None:
    """Let the C library keep up to 1 GiB of what torch frees, for the next tensors, instead of returning it at once.

    An update makes and frees the same tensors for every micro-batch. What was returned to the system comes back page by
    page, each with a fault: a tenth of the processor time of a small policy's update. Only glibc has these options;
    with any other C library this does nothing.
    """
    option = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if option is not None:
        option(_TRIM_THRESHOLD, KEPT_BYTES)
        option(_MMAP_THRESHOLD, KEPT_BYTES)


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
