"""Attention of a packed micro-batch's block on the CPU: by torch's kernel, or in bfloat16 by plain products.

In bfloat16 torch's kernel reaches a third of the speed of the products that it consists of; written as these, attention
takes 0.6 to 0.8 of the time. With c the scale, attention and its gradients, from the outputs' gradient G, are

    P = softmax(c Q K' + mask)                                            O = P V
    E = P * (G V' - the sum of G * O over the dimension), of the scores

    of Q: c E K             of K: c E' Q             of V: P' G

They are computed for a `Stretch` of queries at a time, with the keys that these see. The backward pass computes P
again, so that Q, K, V and O are kept, as of torch's kernel. In float32 the kernel is about as fast, and computes.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.autograd.function import once_differentiable
from torch.nn.functional import scaled_dot_product_attention

from turnwise.policy.packing import Block, Stretch


def attend(queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, block: Block, scale: float) -> torch.Tensor:
    """The heads' outputs, [sequences, heads, queries, dimension], as `queries`.

    `keys` and `values` are [sequences, key heads, keys, dimension]; each key head serves as many successive heads.
    """
    if block.dtype != torch.bfloat16:
        return scaled_dot_product_attention(
            queries,
            keys,
            values,
            attn_mask=block.mask,
            is_causal=block.mask is None,
            enable_gqa=True,
            scale=scale,
        )
    grouped = queries.unflatten(1, (keys.shape[1], -1))
    outputs: torch.Tensor = _ByProducts.apply(grouped, keys, values, block, scale)
    return outputs.flatten(1, 2)


class _ByProducts(torch.autograd.Function):
    """The formulas at the head of this file, in the block's type.

    Of queries [sequences, key heads, heads a key head, queries, dimension], and keys and values [sequences, key heads,
    keys, dimension]. Sums over stretches, and gradients, are in float32 at least.
    """

    @staticmethod
    def forward(
        context: Any, queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, block: Block, scale: float
    ) -> torch.Tensor:
        scaled, keys, values = (each.to(block.dtype) for each in (queries * scale, keys, values))
        outputs = torch.empty_like(scaled)
        for stretch in block.stretches:
            into = outputs[:, :, :, stretch.queries]
            attended = _probabilities(scaled, keys, stretch) @ values[:, :, : stretch.keys]
            into.copy_(attended.view_as(into))
        context.save_for_backward(scaled, keys, values, outputs)
        context.stretches, context.scale = block.stretches, scale
        return outputs

    @staticmethod
    @once_differentiable
    def backward(context: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, None, None]:
        scaled, keys, values, outputs = context.saved_tensors
        exact = torch.promote_types(scaled.dtype, torch.float32)
        query_gradients = torch.empty(scaled.shape, dtype=exact)
        key_gradients, value_gradients = (torch.zeros(each.shape, dtype=exact) for each in (keys, values))
        mean = (gradient * outputs).sum(-1, keepdim=True)
        for stretch in context.stretches:
            seen = slice(stretch.keys)
            scaled_here, gradient_here, mean_here = (
                each[:, :, :, stretch.queries].flatten(2, 3) for each in (scaled, gradient, mean)
            )
            probabilities = _probabilities(scaled, keys, stretch)
            value_gradients[:, :, seen] += probabilities.mT @ gradient_here
            score_gradients = (gradient_here @ values[:, :, seen].mT).sub_(mean_here).mul_(probabilities)
            key_gradients[:, :, seen] += score_gradients.mT @ scaled_here
            into = query_gradients[:, :, :, stretch.queries]
            into.copy_((score_gradients @ keys[:, :, seen]).view_as(into))
        return query_gradients.mul_(context.scale), key_gradients, value_gradients, None, None


def _probabilities(scaled: torch.Tensor, keys: torch.Tensor, stretch: Stretch) -> torch.Tensor:
    """P: [sequences, key heads, heads a key head x queries of the stretch, keys that they see]."""
    queries = scaled[:, :, :, stretch.queries]
    scores = queries.flatten(2, 3) @ keys[:, :, : stretch.keys].mT
    scores.unflatten(2, queries.shape[2:4])[..., stretch.seen_by_all :].add_(stretch.mask)
    return scores.softmax(-1)
