"""What is chosen on a card, as far as it can be seen without one: vLLM's arguments, and torch's fused AdamW."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from turnwise.policy.engines import vllm_model
from turnwise.policy.engines.vllm import VllmEngine
from turnwise.policy.engines.vllm_model import engine_memory
from turnwise.policy.memory_plan import GIB
from turnwise.policy.optimizer import NamedAdamW

MakePolicy = Callable[..., Path]


def engine_on(device: str) -> VllmEngine:
    return VllmEngine(device=device, threads=1, context_length=64, maximum_episodes=2)


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch) -> int:
    """A card of 80 GiB, as far as vLLM's arguments are concerned."""
    pytest.importorskip("vllm", reason="vLLM is not installed")
    monkeypatch.setattr(vllm_model, "device_bytes", lambda device: 80 * GIB)
    return 80 * GIB


def test_on_a_card_vllm_decodes_by_cuda_graphs_that_need_no_compiler(card: int, make_policy: MakePolicy) -> None:
    from vllm.config import CompilationConfig
    from vllm.config.compilation import CompilationMode, CUDAGraphMode

    arguments = engine_on("cuda")._arguments(make_policy(0))
    assert "enforce_eager" not in arguments
    # As vLLM reads them.
    found = CompilationConfig(**arguments["compilation_config"])
    assert found.mode == CompilationMode.NONE
    assert found.cudagraph_mode.decode_mode() == CUDAGraphMode.FULL
    assert not found.cudagraph_mode.requires_piecewise_compilation(), "it would need the compiler"


def test_on_a_card_cache_and_share_of_the_card_are_those_of_the_plan(card: int, make_policy: MakePolicy) -> None:
    policy = make_policy(0)
    memory, arguments = engine_memory(policy, "cuda", "float32", 64, 2), engine_on("cuda")._arguments(policy)
    assert arguments["kv_cache_memory_bytes"] == memory.cache
    assert (
        arguments["gpu_memory_utilization"] == (memory.weights + memory.cache + memory.graphs + memory.sampling) / card
    )


def test_on_a_cpu_vllm_is_eager_and_no_share_of_a_card_is_asked_for(card: int, make_policy: MakePolicy) -> None:
    arguments = engine_on("cpu")._arguments(make_policy(0))
    assert arguments["enforce_eager"] is True
    assert not {"compilation_config", "gpu_memory_utilization"} & arguments.keys()


def test_adamw_is_torchs_fused_one() -> None:
    optimizer = NamedAdamW({"weight": torch.nn.Parameter(torch.ones(2))})._optimizer
    assert isinstance(optimizer, torch.optim.AdamW)
    assert all(group["fused"] is True for group in optimizer.param_groups)
