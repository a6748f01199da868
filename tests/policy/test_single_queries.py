"""The loops for single queries compute torch's attention, each sequence by its own length."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import scaled_dot_product_attention

from turnwise.policy.engines.single_queries import _require_kind_of_processor, attend_singly
from turnwise.policy.threads import computing_threads

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


def test_loops_are_compiled_for_a_kind_of_processor_and_not_for_a_model(monkeypatch: pytest.MonkeyPatch) -> None:
    _require_kind_of_processor()
    monkeypatch.setenv("NUMBA_CPU_NAME", "another")
    with pytest.raises(RuntimeError, match=r"Numba must compile for any processor.*import turnwise first"):
        _require_kind_of_processor()
