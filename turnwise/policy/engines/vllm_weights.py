"""The weights of a policy by name, and what the workers of vLLM's tensor parallelism are told."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from turnwise.policy.adapted import load_adapted
from turnwise.policy.model import merged_weights

WORKERS_ENVIRONMENT = {"VLLM_WORKER_MULTIPROCESSING_METHOD": "spawn", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
"""What the workers of tensor parallelism need besides: a fresh process each, and on the CPU no cores of their own, of
which vLLM would otherwise want a whole socket for each."""


def seed_worker(worker: Any, seed: int) -> None:
    """In a worker's process: seed the numbers that tokens are drawn with."""
    torch.manual_seed(seed)


def load_in_worker(worker: Any, policy: Path, base: Path | None) -> None:
    """In a worker's process: overwrite its share of the weights in place."""
    worker.reload_weights(weights_iterator=iter(named_tensors(policy, base)))


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
