"""The size of a policy before it is made or loaded: the shapes of its weights, without torch."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from math import prod
from pathlib import Path

from turnwise.config.model_settings import Adapter, Moments
from turnwise.config.schema import Policy

Shapes = Mapping[str, tuple[int, ...]]
"""The shape of each weight, by name."""


def shapes_from_scratch(policy: Policy) -> dict[str, tuple[int, ...]]:
    """The shapes of the weights of a policy from scratch, with the largest vocabulary that it may have."""
    hidden, inner, head = policy.hidden, policy.feed_forward, policy.hidden // policy.heads
    found: dict[str, tuple[int, ...]] = {"embed_tokens.weight": (policy.vocabulary, hidden), "norm.weight": (hidden,)}
    if not policy.tied_embeddings:
        found["lm_head.weight"] = (policy.vocabulary, hidden)
    for layer in range(policy.layers):
        for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
            found[f"{layer}.{name}.weight"] = (hidden, hidden)
        for name in ("gate_proj", "up_proj"):
            found[f"{layer}.{name}.weight"] = (inner, hidden)
        found[f"{layer}.down_proj.weight"] = (hidden, inner)
        for name, size in (("q_norm", head), ("k_norm", head), ("input_norm", hidden), ("output_norm", hidden)):
            found[f"{layer}.{name}.weight"] = (size,)
    return found


def shapes_in(folder: Path) -> dict[str, tuple[int, ...]]:
    """The shapes of the weights in a folder in Hugging Face's layout, from the headers of its safetensors files."""
    found: dict[str, tuple[int, ...]] = {}
    for path in sorted(folder.glob("model*.safetensors")):
        with path.open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            header = json.loads(file.read(length))
        found.update({name: tuple(entry["shape"]) for name, entry in header.items() if name != "__metadata__"})
    return found


def count(shapes: Shapes) -> int:
    """The number of parameters in all weights."""
    return sum(map(prod, shapes.values()))


def covered(shapes: Shapes, adapter: Adapter) -> dict[str, tuple[int, ...]]:
    """The shapes of the weights of the linear layers that the adapter is added to."""
    return {
        name: shape
        for name, shape in shapes.items()
        if len(shape) == 2 and name.removesuffix(".weight").rpartition(".")[2] in adapter.target_modules
    }


def moment_bytes(weights: int, moments: Moments) -> int:
    """The bytes of AdamW's two moments of so many trained weights: see `turnwise.policy.optimizer`."""
    scales = 2 * 4 * weights // 256 if moments == "8-bit" else 0
    return 2 * {"float32": 4, "bfloat16": 2, "8-bit": 1}[moments] * weights + scales


def trained(shapes: Shapes, adapter: Adapter | None) -> int:
    """The number of trained parameters: all, or with an adapter only the adapter's."""
    if adapter is None:
        return count(shapes)
    return sum(adapter.rank * sum(shape) for shape in covered(shapes, adapter).values())
