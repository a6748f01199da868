"""What becomes of the memory that torch frees on the CPU: kept for the next tensors, returned when others compute.

Nothing here imports torch.
"""

from __future__ import annotations

import ctypes
import sys

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""The numbers of these options of glibc's `mallopt`."""
KEPT_BYTES = 2**30
RETURNED_BYTES = 2**20
"""The size from which on a large policy's tensors are returned."""
LARGE_POLICY = 2**26
_STATE = ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")
"""The members of what glibc's `mallinfo2` returns."""


def keep_freed_memory(parameters: int, *, few_sizes: bool) -> None:
    """Let the C library keep what torch frees for the next tensors, as `keeps_freed_memory` says.

    An update makes and frees the same tensors for every micro-batch. What was returned to the system comes back page by
    page, each with a fault: a tenth of the processor time of a small policy's update, and a fifth to a third of one of
    135 million parameters. Only glibc has these options; with any other C library this does nothing.
    """
    option = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if option is not None:
        threshold = KEPT_BYTES if keeps_freed_memory(parameters, few_sizes=few_sizes) else RETURNED_BYTES
        option(_TRIM_THRESHOLD, threshold)
        option(_MMAP_THRESHOLD, threshold)


def keeps_freed_memory(parameters: int, *, few_sizes: bool) -> bool:
    """Whether what an update of so many parameters frees is kept; `few_sizes`: its tensors are of few sizes.

    Of at most `LARGE_POLICY` parameters it is always kept. A larger policy's tensors are returned at once where they
    are of many sizes, as transformers' forward pass and checkpointing make them: glibc does not find room for an
    aligned tensor where one of about the same size has been freed, and so kept eight times what an update of 85 million
    parameters needs at a time, 1.3 GiB rather than 0.2.
    """
    return few_sizes or parameters <= LARGE_POLICY


class _AllocatorState(ctypes.Structure):
    """What glibc's `mallinfo2` returns. `fordblks` is the bytes of freed memory, what has been returned included."""

    _fields_ = tuple((name, ctypes.c_size_t) for name in _STATE)


def return_freed_memory() -> None:
    """Return to the system what the C library holds of freed memory, where it has freed more than 1 GiB.

    For who begins to compute where another has ended: tensors of other sizes find no place between those that are still
    in use. Only glibc can; with any other C library this does nothing.
    """
    library = ctypes.CDLL(None)
    read_state, trim = (getattr(library, name, None) for name in ("mallinfo2", "malloc_trim"))
    if read_state is None or trim is None:
        return
    read_state.restype = _AllocatorState
    if read_state().fordblks > KEPT_BYTES:
        trim(0)
