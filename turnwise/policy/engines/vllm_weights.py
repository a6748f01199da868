"""The weights of a policy by name, as vLLM is given them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import torch
from safetensors.torch import load_file

from turnwise.policy.adapted import load_adapted
from turnwise.policy.model import merged_weights


def named_tensors(policy: Path, base: Path | None) -> Iterable[tuple[str, torch.Tensor]]:
    """The policy's weights by name, merged where it is an adapter, always including the output layer.

    With tied embeddings the file has no `lm_head.weight`, but vLLM's CPU kernels hold a packed copy of it, which would
    silently keep the old weights. Raises FileNotFoundError where there are no weights.
    """
    if base is not None:
        return merged_weights(load_adapted(base, policy))
    tensors: dict[str, torch.Tensor] = {}
    for file in sorted(policy.glob("model*.safetensors")):
        tensors.update(load_file(file))
    if not tensors:
        raise FileNotFoundError(f"a policy's folder must hold model.safetensors; {policy} does not")
    if "lm_head.weight" not in tensors:
        tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"]
    return tensors.items()
