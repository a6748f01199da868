"""What becomes of the memory that torch frees on the CPU: the C library keeps it for the next tensors.

Nothing here imports torch.
"""

from __future__ import annotations

import ctypes
import sys

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
