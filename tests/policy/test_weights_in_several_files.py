"""A model whose weights are published in several files, as large ones are, is one like any other."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from policy_samples import CONTEXT, contexts, sample
from transformers import AutoModelForCausalLM

from turnwise.config.model_settings import PLAIN, Adapter, ModelSettings
from turnwise.policy.adapted import write_whole_policy
from turnwise.policy.engines.contract import Engine
from turnwise.policy.engines.resident import make_engine
from turnwise.policy.engines.vllm_model import named_tensors
from turnwise.policy.learner.learner import Learner
from turnwise.policy.model import load_policy
from turnwise.policy.model_files import model_files
from turnwise.store.digests import sha256_of

MakePolicy = Callable[..., Path]
ADAPTED = ModelSettings(adapter=Adapter(rank=2, alpha=4))
PART = "60KB"
"""The most bytes of a file; an untied policy of the tests has 370 kB."""


@pytest.fixture(params=[True, False], ids=["tied", "untied"])
def both(request: pytest.FixtureRequest, make_policy: MakePolicy, tmp_path: Path) -> tuple[Path, Path]:
    """A policy in one file, and the same copied from a folder with several, as the stage of a first policy copies."""
    whole, published, copied = make_policy(3, tied=request.param), tmp_path / "published", tmp_path / "copied"
    AutoModelForCausalLM.from_pretrained(whole).save_pretrained(published, max_shard_size=PART)
    copied.mkdir()
    for path in model_files(published):
        shutil.copyfile(path, copied / path.name)
    assert len(list(copied.glob("model-*.safetensors"))) > 2
    return whole, copied


def test_learner_and_engines_read_the_same_weights(both: tuple[Path, Path]) -> None:
    first, second = (load_policy(folder, PLAIN).state_dict() for folder in both)
    assert first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)
    of_vllm, of_vllm_again = (dict(named_tensors(folder, None)) for folder in both)
    assert of_vllm.keys() == of_vllm_again.keys() and "lm_head.weight" in of_vllm
    assert all(torch.equal(of_vllm[name], of_vllm_again[name]) for name in of_vllm)
    engine = make_engine("embedded", threads=1, context_length=CONTEXT, maximum_episodes=16)
    replies = []
    for number, folder in enumerate(both):
        engine.load(folder, str(number))
        replies.append(sample(engine, contexts(), temperature=1.0))
    assert replies[0] == replies[1]


@pytest.mark.engine
def test_vllm_starts_with_weights_in_several_files(vllm_engine: Engine, both: tuple[Path, Path]) -> None:
    replies = []
    for number, folder in enumerate(both):
        vllm_engine.close()
        vllm_engine.load(folder, f"started with {number}")
        replies.append(sample(vllm_engine, contexts(), temperature=1.0))
    assert replies[0] == replies[1]


def test_a_learner_saves_one_file_whatever_it_began_with(both: tuple[Path, Path], tmp_path: Path) -> None:
    saved = [tmp_path / "first", tmp_path / "second"]
    for source, folder in zip(both, saved, strict=True):
        Learner(source, threads=1).save(folder)
        assert [path.name for path in folder.glob("model*.safetensors*")] == ["model.safetensors"]
    assert sha256_of(saved[0] / "model.safetensors") == sha256_of(saved[1] / "model.safetensors")


def test_an_adapter_of_weights_in_several_files_is_merged(both: tuple[Path, Path], tmp_path: Path) -> None:
    merged = []
    for number, source in enumerate(both):
        adapter, folder = tmp_path / f"adapter {number}", tmp_path / f"merged {number}"
        Learner(source, threads=1, model=ADAPTED).save(adapter)
        write_whole_policy(source, adapter, folder)
        merged.append(sha256_of(folder / "model.safetensors"))
    assert merged[0] == merged[1]
