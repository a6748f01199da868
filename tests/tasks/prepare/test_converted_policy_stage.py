"""The stage `converted_policy`: a GGUF becomes a policy and its tokenizer, known by the file's content."""

from __future__ import annotations

from pathlib import Path

import pytest
from stage_samples import Small

from tasks.caching import cache_key
from tasks.prepare.materials import ConversionParameters, TokenizerParameters, converted_policy, tokenizer
from tests.policy.gguf_samples import write_gguf
from turnwise.errors import ConfigurationError
from turnwise.policy.published import ModelUse, require_usable
from turnwise.store import default_store


def parameters(small: Small, path: Path) -> ConversionParameters:
    return ConversionParameters.of(small.experiment.policy.model_copy(update={"model": str(path)}))


def test_the_policy_can_be_used_and_its_tokenizer_is_that_of_the_file(small: Small, tmp_path: Path) -> None:
    model = write_gguf(tmp_path / "model.gguf")
    made = converted_policy.fn(parameters(small, tmp_path / "model.gguf"))
    require_usable(default_store().folder(made), ModelUse("embedded", 256))
    assert made.kind == "policy" and default_store().metrics(made) == {
        "parameters": sum(each.numel() for each in model.parameters())
    }
    of_stage = tokenizer.fn(
        TokenizerParameters(pretrained=None, vocabulary=300, format="think-answer"),
        demonstrations=small.demonstrations,
        converted=made,
    )
    first, second = (default_store().folder(each) / "tokenizer.json" for each in (made, of_stage))
    assert first.read_bytes() == second.read_bytes()


def test_its_key_follows_the_content_and_neither_the_place_nor_the_name(small: Small, tmp_path: Path) -> None:
    write_gguf(tmp_path / "model.gguf")
    (tmp_path / "another.gguf").write_bytes((tmp_path / "model.gguf").read_bytes())
    first, second = (
        cache_key(converted_policy, parameters(small, tmp_path / name)) for name in ("model.gguf", "another.gguf")
    )
    assert first == second
    other = parameters(small, tmp_path / "model.gguf").changed(versions={"transformers": "1", "gguf": "1"})
    assert cache_key(converted_policy, other) != first


def test_a_file_that_changed_on_the_way_is_refused(small: Small, tmp_path: Path) -> None:
    write_gguf(tmp_path / "model.gguf")
    before = parameters(small, tmp_path / "model.gguf")
    with (tmp_path / "model.gguf").open("ab") as file:
        file.write(b"more")
    with pytest.raises(ConfigurationError, match="TW-changed-file"):
        converted_policy.fn(before)
