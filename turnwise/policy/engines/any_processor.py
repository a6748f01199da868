"""Numba's compiler for a kind of processor rather than for the model of this one, so that results repeat elsewhere.

By a processor's model Numba chooses in which order sums are taken. It reads for which one to compile when it makes the
context of its target, once for all functions of a process, and by then a user's own function may have been compiled for
the model. So the functions here have a target of their own, and Numba's settings are only another's while they compile:
what a user compiles, before or after, is not changed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any

import numba
from numba.core.compiler_lock import global_compiler_lock
from numba.core.registry import CPUDispatcher, CPUTarget

PROCESSOR, FEATURES = ("x86-64-v3", "+avx2,+fma") if os.uname().machine == "x86_64" else ("generic", "")
"""Every x86 processor with AVX2, in LLVM's words; elsewhere every processor of the architecture."""


@contextmanager
def _for_any_processor() -> Iterator[None]:
    """Have Numba compile for any processor. No other thread compiles meanwhile."""
    with global_compiler_lock:
        before = numba.config.CPU_NAME, numba.config.CPU_FEATURES
        numba.config.CPU_NAME, numba.config.CPU_FEATURES = PROCESSOR, FEATURES
        try:
            yield
        finally:
            numba.config.CPU_NAME, numba.config.CPU_FEATURES = before


class ForAnyProcessor(CPUDispatcher):
    """A function that Numba compiles for any processor."""

    targetdescr = CPUTarget("cpu")

    def compile(self, sig: Any) -> Any:
        """Compile the function for arguments of these types."""
        with _for_any_processor():
            return super().compile(sig)


def compiled_for_any_processor(
    *, fastmath: Collection[str], error_model: str, nogil: bool
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Decorate a function that Numba is to compile; the arguments are those of `numba.njit`. It is kept on the disk."""
    options = {"nopython": True, "fastmath": set(fastmath), "error_model": error_model, "nogil": nogil}

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        if numba.config.DISABLE_JIT:
            return function
        with _for_any_processor():
            compiled = ForAnyProcessor(function, targetoptions={**options, "boundscheck": None})
        compiled.enable_caching()
        return compiled

    return decorate
