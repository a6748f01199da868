"""Attention of the update in bfloat16, by products, beside torch's kernel: forward and backward, side by side.

Shapes are those of SmolLM2-135M-Instruct (9 heads of width 64, of which 3 have keys) and of the episodes of
`python -m benchmarks.against_trl --model FOLDER` with 3 and 8 turns, of which 140 tokens are shared. One thread,
processor milliseconds a sequence and layer, medians of turns that alternate.

    python -m benchmarks.attention
"""

from __future__ import annotations

import statistics
import sys
import time

import torch
from torch.nn.functional import scaled_dot_product_attention

from turnwise.policy.attention import attend
from turnwise.policy.packing import Block

SEQUENCES, HEADS, KEY_HEADS, DIMENSION = 8, 9, 3, 64
SHARED, LENGTHS = 140, (355, 680)
ROUNDS = 7


def main() -> None:
    """Print a line for each length."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    sys.stdout.write(f"{'tokens':>6} {'shared':>6} {'kernel ms':>10} {'products ms':>12} {'ratio':>6}\n")
    for length in LENGTHS:
        kernel, products = measure(length)
        sys.stdout.write(f"{length:>6} {SHARED:>6} {kernel:>10.1f} {products:>12.1f} {products / kernel:>6.2f}\n")


def measure(length: int) -> tuple[float, float]:
    """Milliseconds a sequence of so many tokens, by torch's kernel and by products."""
    new = length - SHARED
    seen = torch.arange(SHARED + 1, length + 1).expand(SEQUENCES, new)
    block = Block(torch.zeros(SEQUENCES * new), torch.zeros(SEQUENCES * length), seen, torch.bfloat16)
    shapes = ((HEADS, new), (KEY_HEADS, length), (KEY_HEADS, length), (HEADS, new))
    *inputs, gradient = (
        torch.randn(SEQUENCES, heads, tokens, DIMENSION, dtype=torch.bfloat16) for heads, tokens in shapes
    )
    queries, keys, values = (each.requires_grad_() for each in inputs)

    def by_the_kernel() -> None:
        outputs = scaled_dot_product_attention(queries, keys, values, attn_mask=block.mask, enable_gqa=True)
        outputs.backward(gradient)

    def by_products() -> None:
        attend(queries, keys, values, block, DIMENSION**-0.5).backward(gradient)

    seconds: dict[str, list[float]] = {"kernel": [], "products": []}
    for _ in range(ROUNDS):
        for name, compute in (("kernel", by_the_kernel), ("products", by_products)):
            began = time.process_time()
            compute()
            seconds[name].append(time.process_time() - began)
    kernel, products = (1000 * statistics.median(each) / SEQUENCES for each in seconds.values())
    return kernel, products


if __name__ == "__main__":
    main()
