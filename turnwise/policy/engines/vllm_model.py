"""What vLLM is given: a policy's architecture and weights, and the share of a card that it may take."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from transformers import AutoConfig, PretrainedConfig

from turnwise.config.model_settings import Precision
from turnwise.errors import ConfigurationError
from turnwise.policy.adapted import load_adapted
from turnwise.policy.device_memory import device_bytes
from turnwise.policy.dimensions import dimensions_in
from turnwise.policy.memory_plan import GIB, EngineMemory
from turnwise.policy.model import merged_weights

NOT_ARCHITECTURE = ("_name_or_path", "transformers_version", "dtype", "bos_token_id", "eos_token_id", "pad_token_id")
"""Names, versions, the precision that an engine is told, and tokens that one which is told where to stop does not read.
"""
CPU_BLOCK_TOKENS = 32
"""Tokens of a block of the KV cache on a CPU, the fewest that vLLM's kernels take. Only whole blocks are found again at
the next turn: with vLLM's own 128, contexts of some turns would be computed from their beginning at each of them."""
WORKERS_ENVIRONMENT = {"VLLM_WORKER_MULTIPROCESSING_METHOD": "spawn", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
"""What the workers of tensor parallelism need besides: a fresh process each, and on the CPU no cores of their own, of
which vLLM would otherwise want a whole socket for each."""
CUDA_GRAPHS = {"mode": 0, "cudagraph_mode": "FULL_DECODE_ONLY"}
"""vLLM's compilation on a card: none (mode 0), and CUDA graphs of the steps in which every sequence has one new token.
Most steps of a rollout are such."""


def architecture(policy: Path) -> dict[str, Any]:
    """What policies must share to be served by one started engine: their configurations, as transformers reads them.

    A published `config.json` and the one that is saved after training say the same in other words: `rope_theta` or
    `rope_parameters`, a default or nothing. What precision they were saved in is not part of it.
    """
    configuration: PretrainedConfig = AutoConfig.from_pretrained(str(policy), trust_remote_code=False)
    return {name: value for name, value in configuration.to_dict().items() if name not in NOT_ARCHITECTURE}


def engine_memory(
    policy: Path, device: str, precision: Precision, context_length: int, episodes: int, tensor_parallel: int = 1
) -> EngineMemory:
    """The memory that the engine takes for this policy on each of its devices, as the plan of a run has it."""
    return EngineMemory(
        dimensions_in(policy),
        "vllm",
        device,
        precision,
        context_length,
        most_episodes=episodes,
        episodes=episodes,
        tensor_parallel=tensor_parallel,
    )


def share_of_card(memory: EngineMemory) -> float:
    """The share of the card that vLLM must find free when it starts: what its plan takes, and no more.

    vLLM's own default is 92 %, which it does not find where a learner or another process is on the card. Raises
    ConfigurationError where the plan is more than the card has.
    """
    total = device_bytes("cuda")
    if total is None:
        raise ConfigurationError(
            "the device cuda must be there; torch finds none: set compute.device to cpu", "TW-no-cuda"
        )
    needed = memory.weights + memory.cache + memory.graphs + memory.sampling
    if needed > total:
        raise ConfigurationError(
            f"vLLM must fit into the card, {total / GIB:,.1f} GiB; it takes {memory.weights / GIB:,.1f} for the "
            f"policy's weights, {memory.cache / GIB:,.1f} for its cache, {memory.sampling / GIB:,.1f} to sample: set "
            "agent.context_tokens lower, or choose a smaller policy or a larger card",
            "TW-small-memory",
        )
    return needed / total


def arguments_of_device(memory: EngineMemory) -> dict[str, Any]:
    """The arguments that vLLM has on a CPU or on a card alone."""
    if memory.device == "cpu":
        return {"enforce_eager": True, "block_size": CPU_BLOCK_TOKENS}
    return {"compilation_config": CUDA_GRAPHS, "gpu_memory_utilization": share_of_card(memory)}


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
