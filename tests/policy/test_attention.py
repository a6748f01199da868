"""Attention by products is that of torch's kernel, and so are its gradients."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from turnwise.policy.attention import _ByProducts, attend
from turnwise.policy.packing import QUERIES_OF_A_STRETCH, Block

KEY_HEADS, HEADS_A_KEY_HEAD, DIMENSION, SCALE = 2, 3, 8, 0.3
LONG = 2 * QUERIES_OF_A_STRETCH + 5
SEEN = {
    "one query": [[3]],
    "all tokens are new": [list(range(1, LONG + 1))],
    "each has known tokens": [list(range(10, 10 + LONG)), list(range(4, 4 + LONG))],
    "one has fewer queries, and fewer keys": [list(range(10, 10 + LONG)), [6, 7, 8] + [8] * (LONG - 3)],
}


def block_of(seen: list[list[int]], dtype: torch.dtype) -> Block:
    """Queries that see so many keys each, of as many keys as one of them sees."""
    keys = max(map(max, seen))
    return Block(torch.zeros(len(seen) * len(seen[0])), torch.zeros(len(seen) * keys), torch.tensor(seen), dtype)


def drawn(block: Block) -> list[torch.Tensor]:
    """Queries, keys, values and the outputs' gradient, in float64."""
    draw = torch.Generator().manual_seed(0)
    keys = len(block.keys) // block.sequences
    shapes = [
        (block.sequences, heads, length, DIMENSION)
        for heads, length in (
            (KEY_HEADS * HEADS_A_KEY_HEAD, block.seen.shape[1]),
            (KEY_HEADS, keys),
            (KEY_HEADS, keys),
            (KEY_HEADS * HEADS_A_KEY_HEAD, block.seen.shape[1]),
        )
    ]
    return [torch.randn(shape, generator=draw, dtype=torch.float64) for shape in shapes]


def by_the_kernel(
    queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, gradient: torch.Tensor, block: Block
) -> list[torch.Tensor]:
    """Outputs and gradients, of queries that see as many keys as the block says."""
    inputs = [each.clone().requires_grad_() for each in (queries, keys, values)]
    seen = torch.arange(keys.shape[2]) < block.seen[..., None]
    outputs = scaled_dot_product_attention(*inputs, attn_mask=seen[:, None], enable_gqa=True, scale=SCALE)
    outputs.backward(gradient)
    return [outputs, *(each.grad for each in inputs if each.grad is not None)]


@pytest.mark.parametrize("seen", SEEN)
def test_products_in_float64_are_the_kernel_and_its_gradients(seen: str) -> None:
    block = block_of(SEEN[seen], torch.float64)
    queries, keys, values, gradient = drawn(block)
    inputs = [each.clone().requires_grad_() for each in (queries, keys, values)]
    grouped = inputs[0].unflatten(1, (KEY_HEADS, HEADS_A_KEY_HEAD))
    outputs = _ByProducts.apply(grouped, *inputs[1:], block, SCALE).flatten(1, 2)
    outputs.backward(gradient)
    found = [outputs, *(each.grad for each in inputs)]
    for one, expected in zip(found, by_the_kernel(queries, keys, values, gradient, block), strict=True):
        assert one is not None and torch.allclose(one, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("seen", SEEN)
def test_in_bfloat16_products_are_near_the_exact_attention_and_gradients_keep_their_inputs_types(seen: str) -> None:
    block = block_of(SEEN[seen], torch.bfloat16)
    queries, keys, values, gradient = drawn(block)
    inputs = [
        each.to(dtype).requires_grad_()
        for each, dtype in ((queries, torch.float32), (keys, torch.float32), (values, torch.bfloat16))
    ]
    outputs = attend(*inputs, block, SCALE)
    outputs.backward(gradient.to(torch.bfloat16))
    assert outputs.dtype == torch.bfloat16
    assert [each.grad.dtype for each in inputs if each.grad is not None] == [each.dtype for each in inputs]
    found = [outputs, *(each.grad for each in inputs)]
    for one, expected in zip(found, by_the_kernel(queries, keys, values, gradient, block), strict=True):
        assert one is not None and (one.double() - expected).norm() < 0.02 * expected.norm()
    assert (outputs.double() - by_the_kernel(queries, keys, values, gradient, block)[0]).norm() > 0.0


def test_in_float32_the_kernel_computes_to_the_bit() -> None:
    block = block_of(SEEN["each has known tokens"], torch.float32)
    queries, keys, values, _ = (each.float() for each in drawn(block))
    expected = scaled_dot_product_attention(queries, keys, values, attn_mask=block.mask, enable_gqa=True, scale=SCALE)
    assert torch.equal(attend(queries, keys, values, block, SCALE), expected)
