"""A policy from scratch: the same arguments give the same bytes, and impossible sizes are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from policy_samples import write_policy

from turnwise.config.model_settings import require_kernels
from turnwise.errors import ConfigurationError
from turnwise.policy.architecture import create_policy

SIZES: dict[str, Any] = {"vocabulary_size": 300, "context_length": 64, "end_token": 1, "pad_token": 2}


def test_the_seed_decides_the_weights_and_nothing_else(tmp_path: Path) -> None:
    torch.manual_seed(1)
    state = torch.get_rng_state()
    first, again, other = (tmp_path / name for name in ("first", "again", "other"))
    for folder, seed in ((first, 3), (again, 3), (other, 4)):
        write_policy(folder, seed)
    assert torch.equal(torch.get_rng_state(), state)
    for name in ("config.json", "model.safetensors"):
        assert (first / name).read_bytes() == (again / name).read_bytes()
    assert (first / "model.safetensors").read_bytes() != (other / "model.safetensors").read_bytes()


def test_the_default_policy_has_about_a_million_parameters(tmp_path: Path) -> None:
    count = create_policy(tmp_path, seed=0, **{**SIZES, "vocabulary_size": 1500})
    assert 0.9e6 < count < 1.1e6


@pytest.mark.parametrize(
    ("sizes", "reason"),
    [
        ({"hidden": 100, "heads": 3}, "TW-model-shape"),
        ({"hidden": 100, "heads": 4}, "TW-model-shape"),
        ({"heads": 4, "key_value_heads": 3}, "TW-model-shape"),
    ],
)
def test_impossible_sizes_are_refused(tmp_path: Path, sizes: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigurationError, match=reason):
        create_policy(tmp_path, seed=0, **SIZES, **sizes)


def test_a_size_of_heads_that_vllm_refuses_is_no_reason_to_refuse_the_other_engine(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"\b128\b.*\b8\b.*\b16\b.*TW-model-shape"):
        require_kernels(128, 8, "vllm")
    require_kernels(128, 8, "embedded")
    assert create_policy(tmp_path, seed=0, heads=8, **SIZES) > 0
