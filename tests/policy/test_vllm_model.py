"""What vLLM is started for: once for all policies of a run, within its planned share of a card."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from tests.policy.published_shapes import write_published
from turnwise.config.model_settings import PLAIN
from turnwise.errors import ConfigurationError
from turnwise.policy.engines import vllm_model
from turnwise.policy.engines.vllm_model import architecture, engine_memory, share_of_card
from turnwise.policy.engines.vllm_start import restricted_to_torchs_kernels
from turnwise.policy.model import load_policy, save_policy

SMALL = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "vocab_size": 300,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
MakeFolder = Callable[..., Path]


@pytest.fixture
def published(tmp_path: Path) -> MakeFolder:
    """Makes a folder with a small published configuration, with changes; a value of None takes a key away."""

    def make(name: str = "published", **changes: Any) -> Path:
        folder = write_published(tmp_path / name, "0.5B")
        values = {**json.loads((folder / "config.json").read_text()), **SMALL, **changes}
        values = {key: value for key, value in values.items() if value is not None}
        (folder / "config.json").write_text(json.dumps(values))
        return folder

    return make


def saved(published: Path, folder: Path) -> Path:
    """The configuration that a learner of the published model saves."""
    text = (published / "config.json").read_text()
    AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(published)).save_pretrained(published)
    (published / "config.json").write_text(text)
    save_policy(load_policy(published, PLAIN), folder, PLAIN)
    return folder


def test_a_published_configuration_and_the_saved_one_are_one_architecture(
    published: MakeFolder, tmp_path: Path
) -> None:
    first = published()
    second = saved(first, tmp_path / "saved")
    before, after = (json.loads((folder / "config.json").read_text()) for folder in (first, second))
    assert "rope_theta" in before and "rope_theta" not in after, "they differ in their words"
    assert (before["torch_dtype"], after["dtype"]) == ("bfloat16", "float32"), "the engine is told what to compute in"
    assert architecture(first) == architecture(second)


@pytest.mark.parametrize(
    "changes",
    [{"rope_theta": 10_000.0}, {"num_hidden_layers": 3}, {"rms_norm_eps": 1e-5}, {"tie_word_embeddings": False}],
    ids=lambda changes: next(iter(changes)),
)
def test_what_the_engine_computes_with_makes_another_architecture(
    changes: dict[str, Any], published: MakeFolder
) -> None:
    assert architecture(published()) != architecture(published("other", **changes))


@pytest.mark.parametrize(
    "changes",
    [
        {"rope_theta": None, "rope_parameters": {"rope_theta": 1000000.0, "rope_type": "default"}},
        {"torch_dtype": None, "dtype": "bfloat16"},
        {"transformers_version": "5.0.0", "eos_token_id": [2, 3], "pad_token_id": 0},
    ],
    ids=["rope", "dtype", "tokens"],
)
def test_other_words_for_the_same_make_none(changes: dict[str, Any], published: MakeFolder) -> None:
    assert architecture(published()) == architecture(published("other", **changes))


def test_the_share_of_a_card_is_what_the_plan_takes_of_it(
    published: MakeFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = engine_memory(published(), "cuda", "bfloat16", 128, 256)
    # Keys and values of one head of 32 in two layers, in two bytes, for 256 episodes of 128 tokens: below the least.
    assert memory.cache == max(256 * 128 * 2 * 2 * 32 * 2, 64 * 2**20)
    needed = memory.weights + memory.cache + memory.graphs + memory.sampling
    monkeypatch.setattr(vllm_model, "device_bytes", lambda device: 4 * needed)
    assert share_of_card(memory) == 0.25
    monkeypatch.setattr(vllm_model, "device_bytes", lambda device: needed - 1)
    with pytest.raises(ConfigurationError, match="TW-small-memory"):
        share_of_card(memory)
    monkeypatch.setattr(vllm_model, "device_bytes", lambda device: None)
    with pytest.raises(ConfigurationError, match="TW-no-cuda"):
        share_of_card(memory)


def test_the_engine_alone_is_held_to_torchs_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    processor = {"avx2": True, "avx512_f": True, "avx512_bf16": True, "amx_tile": True}
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: processor)
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX2")
    with pytest.raises(ConnectionError), restricted_to_torchs_kernels():
        assert torch.cpu.get_capabilities() == {**dict.fromkeys(processor, False), "avx2": True}
        raise ConnectionError
    assert torch.cpu.get_capabilities() == processor
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX512")
    with restricted_to_torchs_kernels():
        assert torch.cpu.get_capabilities() == processor
