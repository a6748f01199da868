"""The stage `base_policy`: half the size, rounded, with its tokenizer: a folder that an experiment starts from."""

from __future__ import annotations

import torch
from safetensors.torch import load_file
from stage_samples import Small

from lab.pretraining.pretrain import PublicationParameters, base_policy
from turnwise.policy.published import ModelUse, require_usable
from turnwise.store import Reference, default_store


def published(small: Small) -> Reference:
    return base_policy.fn(PublicationParameters(), policy=small.policy, tokenizer=small.tokenizer)


def test_its_weights_are_the_policys_rounded_to_bfloat16(small: Small) -> None:
    store = default_store()
    before = load_file(store.folder(small.policy) / "model.safetensors")
    after = load_file(store.folder(published(small)) / "model.safetensors")
    assert before.keys() == after.keys()
    for name, tensor in after.items():
        assert tensor.dtype == torch.bfloat16
        assert torch.equal(tensor, before[name].to(torch.bfloat16))


def test_an_experiment_can_start_from_its_folder(small: Small) -> None:
    require_usable(default_store().folder(published(small)), ModelUse("embedded", 256))


def test_the_same_policy_gives_the_same_files(small: Small) -> None:
    assert published(small) == published(small)
