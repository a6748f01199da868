"""Attention of one query per sequence, as for every token that is sampled, on a CPU in float32.

Keys and values are read once and hardly computed with, so what counts is how fast they are read. torch's attention is
made for many queries at once, and treats every sequence as if it were the longest. These loops read each sequence's own
tokens, where they are in the cache.

Numba compiles them at their first call, in a second, and keeps the result beside this file or, where that cannot be
written, in the user's cache folder. Sums are taken in another order than is written here, and in the same on every x86
processor with AVX2: these loops are compiled for this kind of processor rather than for a model, by which Numba chooses
in which order sums are taken. It reads for which one to compile when it makes the context of its target, once for all
functions of a process, and by then a user's own function may have been compiled for the model. So the functions here
have a target of their own, and Numba's settings are only another's while they compile: what a user compiles, before or
after, is not changed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from typing import Any

import numba
import numpy as np
import torch
from numba.core.compiler_lock import global_compiler_lock
from numba.core.registry import CPUDispatcher, CPUTarget

from turnwise.policy.engines.forward import Integers

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


Floats = np.ndarray[Any, np.dtype[np.float32]]

QUARTERS = 4
"""The loops go through the four quarters of a sequence at once: a processor fetches ahead in several places, and the
numbers of four tokens are added for one write."""

# Sums may be reordered; infinity and NaN must stay what they are, since a policy without finite logits is to be found.
_compiled = compiled_for_any_processor(fastmath={"reassoc", "contract", "nsz"}, error_model="numpy", nogil=True)


def attend_singly(
    queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, slots: Integers, lengths: Integers
) -> torch.Tensor:
    """Attention of one query per sequence and head to the first tokens of a slot.

    `queries` are [sequences, key-value heads, queries per key, dimension], `keys` and `values` [slots, key-value heads,
    tokens, dimension]. `slots` has the slot of each sequence, and `lengths` the number of its tokens. The result has
    the shape of `queries`. It is computed by as many threads as torch has, to the same bits by any number.

    Slots must have room for a multiple of `QUARTERS` tokens. What is beyond a sequence's length is multiplied by
    0, and so must be finite.
    """
    room = -(-int(lengths.max()) // QUARTERS) * QUARTERS
    scaled = queries * queries.shape[-1] ** -0.5
    scores = torch.empty((*queries.shape[:-1], room))
    _by_threads(_score, scaled.numpy(), keys.numpy(), slots, lengths, scores.numpy())
    weights = scores.softmax(-1)
    outputs = torch.empty_like(scaled)
    _by_threads(_sum_up, weights.numpy(), values.numpy(), slots, lengths, outputs.numpy())
    return outputs


@_compiled
def _score(queries: Floats, keys: Floats, slots: Integers, lengths: Integers, scores: Floats) -> None:
    """The product of each query with the keys of its sequence; -inf beyond its length."""
    sequences, heads, shared, dimension = queries.shape
    for row in range(sequences):
        slot, quarter = slots[row], -(-lengths[row] // 4)
        for head in range(heads):
            for one in range(quarter):
                two, three, four = one + quarter, one + 2 * quarter, one + 3 * quarter
                for query in range(shared):
                    first, second, third, fourth = np.float32(0), np.float32(0), np.float32(0), np.float32(0)
                    for place in range(dimension):
                        number = queries[row, head, query, place]
                        first += number * keys[slot, head, one, place]
                        second += number * keys[slot, head, two, place]
                        third += number * keys[slot, head, three, place]
                        fourth += number * keys[slot, head, four, place]
                    scores[row, head, query, one] = first
                    scores[row, head, query, two] = second
                    scores[row, head, query, three] = third
                    scores[row, head, query, four] = fourth
            scores[row, head, :, lengths[row] :] = -np.inf


@_compiled
def _sum_up(weights: Floats, values: Floats, slots: Integers, lengths: Integers, sums: Floats) -> None:
    """The sum of the values of each sequence, by the weights of each query."""
    sequences, heads, shared, dimension = sums.shape
    for row in range(sequences):
        slot, quarter = slots[row], -(-lengths[row] // 4)
        for head in range(heads):
            sums[row, head] = 0
            for one in range(quarter):
                two, three, four = one + quarter, one + 2 * quarter, one + 3 * quarter
                for query in range(shared):
                    first, second = weights[row, head, query, one], weights[row, head, query, two]
                    third, fourth = weights[row, head, query, three], weights[row, head, query, four]
                    for place in range(dimension):
                        sums[row, head, query, place] += (
                            first * values[slot, head, one, place]
                            + second * values[slot, head, two, place]
                            + third * values[slot, head, three, place]
                            + fourth * values[slot, head, four, place]
                        )


def _by_threads(
    loop: Callable[..., None], first: Floats, cached: Floats, slots: Integers, lengths: Integers, outputs: Floats
) -> None:
    """Run a loop over all sequences, each thread with some of them."""
    threads = min(torch.get_num_threads(), len(slots))
    if threads == 1:
        loop(first, cached, slots, lengths, outputs)
        return
    parts = [slice(len(slots) * part // threads, len(slots) * (part + 1) // threads) for part in range(threads)]
    running = [
        _pool(threads).submit(loop, first[part], cached, slots[part], lengths[part], outputs[part]) for part in parts
    ]
    for each in running:
        each.result()


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix="attention")
