"""The stage `initial_policy`: an architecture from scratch, or the files of a pretrained policy."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from safetensors.numpy import load_file
from stage_samples import Small

from tasks.prepare.materials import PolicyParameters, initial_policy
from turnwise.errors import ConfigurationError
from turnwise.policy.pretrained import pretrained
from turnwise.policy.tokenizer import load_tokenizer
from turnwise.store import Reference, default_store


def created(small: Small, **changes: object) -> Reference:
    section = small.experiment.policy.model_copy(update=changes)
    return initial_policy.fn(
        PolicyParameters.of(section, None, small.experiment.agent.context_tokens), tokenizer=small.tokenizer
    )


def test_it_has_the_shape_that_is_configured(small: Small) -> None:
    folder = default_store().folder(small.policy)
    config = json.loads((folder / "config.json").read_text())
    section = small.experiment.policy
    assert (config["hidden_size"], config["num_hidden_layers"]) == (32, 1)
    assert (config["num_attention_heads"], config["num_key_value_heads"]) == (section.heads, section.heads)
    assert config["intermediate_size"] == section.feed_forward
    assert config["max_position_embeddings"] >= small.experiment.agent.context_tokens
    assert config["vocab_size"] >= len(load_tokenizer(default_store().folder(small.tokenizer)))


def test_the_number_of_parameters_is_that_of_the_saved_weights(small: Small) -> None:
    folder = default_store().folder(small.policy)
    weights = load_file(folder / "model.safetensors")
    assert default_store().metrics(small.policy) == {"parameters": sum(each.size for each in weights.values())}
    assert all(str(each.dtype) == "float32" for each in weights.values())


def test_the_seed_decides_the_weights_and_nothing_else_does(small: Small) -> None:
    assert created(small) == created(small) == small.policy
    seed = small.experiment.policy.seed
    assert created(small, seed=seed + 1) != small.policy
    assert default_store().metrics(created(small, seed=seed + 1)) == default_store().metrics(small.policy)


def test_the_files_of_a_pretrained_policy_are_copied_byte_by_byte(small: Small, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    for path in default_store().folder(small.policy).iterdir():
        if path.name != "manifest.json":
            (folder / path.name).write_bytes(path.read_bytes())
    (folder / "README.md").write_text("No part of the policy.")
    found = pretrained(small.experiment.policy.model_copy(update={"model": str(folder)}))
    parameters = PolicyParameters.of(small.experiment.policy, found, 160)
    assert parameters.scratch is None
    copied = initial_policy.fn(parameters, tokenizer=small.tokenizer)
    names = {path.name for path in default_store().folder(copied).iterdir()} - {"manifest.json"}
    assert "model.safetensors" in names and "README.md" not in names
    for name in names:
        assert (default_store().folder(copied) / name).read_bytes() == (folder / name).read_bytes()
    weights = bytearray((folder / "model.safetensors").read_bytes())
    weights[-1] ^= 1
    (folder / "model.safetensors").write_bytes(weights)
    with pytest.raises(ConfigurationError, match=r"policy\.model.*TW-changed-file"):
        initial_policy.fn(parameters, tokenizer=small.tokenizer)
