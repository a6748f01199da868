"""The loops for single queries compute torch's attention, each sequence by its own length."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import scaled_dot_product_attention

from turnwise.policy.determinism import computing_threads
from turnwise.policy.engines.single_queries import attend_singly

SLOTS, ROOM = 9, 24


def drawn(
    heads: int, shared: int, dimension: int, rows: int = SLOTS
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Queries of some rows, and keys and values of all slots."""
    random = torch.Generator().manual_seed(0)
    return (
        torch.randn(rows, heads, shared, dimension, generator=random),
        torch.randn(SLOTS, heads, ROOM, dimension, generator=random),
        torch.randn(SLOTS, heads, ROOM, dimension, generator=random),
    )


@given(
    heads=st.integers(1, 3),
    shared=st.integers(1, 4),
    dimension=st.sampled_from([2, 8, 20, 32, 64]),
    sequences=st.lists(st.tuples(st.integers(0, SLOTS - 1), st.integers(1, ROOM)), min_size=1, max_size=7),
    threads=st.integers(1, 3),
)
@settings(deadline=None)
def test_each_sequence_attends_to_the_tokens_that_it_has(
    heads: int, shared: int, dimension: int, sequences: list[tuple[int, int]], threads: int
) -> None:
    queries, keys, values = drawn(heads, shared, dimension, len(sequences))
    slots, lengths = (np.array(each) for each in zip(*sequences, strict=True))
    with computing_threads(threads):
        found = attend_singly(queries, keys, values, slots, lengths)
    for row, (slot, length) in enumerate(sequences):
        expected = scaled_dot_product_attention(queries[row], keys[slot, :, :length], values[slot, :, :length])
        assert torch.allclose(found[row], expected, atol=2e-6)


def test_a_query_weighs_values_by_the_softmax_of_its_scaled_products() -> None:
    # Of dimension 4, so products are halved: ln 3 and 0, and the weights are 3/4 and 1/4.
    queries = torch.tensor([[[[2.0, 0.0, 0.0, 0.0]]]])
    keys, values = torch.zeros(1, 1, 4, 4), torch.zeros(1, 1, 4, 4)
    keys[0, 0, 0, 0] = float(np.log(3))
    keys[0, 0, 2, 0] = 100.0
    values[0, 0, :3] = torch.tensor([[8.0, 0.0, 4.0, 0.0], [0.0, 8.0, 4.0, 0.0], [99.0, 99.0, 99.0, 99.0]])
    found = attend_singly(queries, keys, values, np.array([0]), np.array([2]))
    assert found.flatten().tolist() == pytest.approx([6.0, 2.0, 4.0, 0.0], abs=1e-6)


def test_any_number_of_threads_gives_the_same_bits() -> None:
    queries, keys, values = drawn(2, 2, 32)
    slots, lengths = np.arange(SLOTS), np.arange(SLOTS) + 3
    found = []
    for threads in (1, 2, 4, 16):
        with computing_threads(threads):
            found.append(attend_singly(queries, keys, values, slots, lengths))
    assert all(torch.equal(each, found[0]) for each in found)


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_a_number_that_is_not_finite_is_not_lost(number: float) -> None:
    for which in range(3):
        tensors = drawn(1, 2, 8, 2)
        tensors[which][1, 0, 0, 0] = number
        found = attend_singly(*tensors, np.array([0, 1]), np.array([5, 5]))
        assert found[0].isfinite().all()
        assert not found[1].isfinite().all()


BESIDE_OTHERS = """
import sys
import numba
import numpy as np

@numba.njit
def first(numbers):
    return numbers.sum()

assert first(np.ones(64)) == 64
import torch
from test_single_queries import some_attention
from turnwise.policy.engines.single_queries import _score, _sum_up

print(some_attention().hex())
machine_code = " ".join([*_score.inspect_asm().values(), *_sum_up.inspect_asm().values()])
assert len(machine_code) > 1000 and "zmm" not in machine_code, "wider registers than the kind of processor has"
assert (numba.config.CPU_NAME, numba.config.CPU_FEATURES) == (None, None)
"""


def some_attention() -> bytes:
    """The bytes of attention to drawn numbers."""
    return attend_singly(*drawn(2, 2, 64), np.arange(SLOTS), np.arange(SLOTS) + 9).numpy().tobytes()


def test_loops_are_compiled_for_a_kind_of_processor_whatever_a_user_has_compiled_before(tmp_path: Path) -> None:
    others = {name: value for name, value in os.environ.items() if not name.startswith("NUMBA_")}
    environment = {**others, "NUMBA_CACHE_DIR": str(tmp_path), "PYTHONPATH": str(Path(__file__).parent)}
    command = [sys.executable, "-c", BESIDE_OTHERS]
    ended = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=500)
    assert ended.returncode == 0, ended.stderr
    assert bytes.fromhex(ended.stdout.strip()) == some_attention()
