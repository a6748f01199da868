"""The base policies of the package: they open without a network, and copy names that nobody has ever seen."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from lab.pretraining.corpus import recall
from turnwise.agent.imitation import conversation_sequence
from turnwise.experiment import load
from turnwise.policy.pretrained import BASE_POLICIES, base_policies, pretrained, pretrained_folder
from turnwise.policy.published import ModelUse, require_usable
from turnwise.policy.tokenizer import ChatFrame, load_tokenizer

NAMES = base_policies()
PARAMETERS = Path(__file__).parents[1] / "parameters.yaml"
LARGEST = 12_000_000
"""Bytes of all base policies together, since they are in the repository."""


def answered(name: str, value: str) -> str:
    """The reply with a value, in the format of the world `search`."""
    return f"<think> {name}</think><answer> {value}</answer>"


def test_there_are_base_policies_and_they_stay_small() -> None:
    assert NAMES == ["base-1m", "base-3m"]
    assert sum(path.stat().st_size for path in BASE_POLICIES.rglob("*") if path.is_file()) <= LARGEST


@pytest.mark.parametrize("name", NAMES)
def test_a_base_policy_says_what_it_is(name: str) -> None:
    card = (BASE_POLICIES / name / "README.md").read_text()
    shape = json.loads((BASE_POLICIES / name / "config.json").read_text())
    assert card.startswith(f"# {name}\n")
    assert f"{shape['num_hidden_layers']} layers of width {shape['hidden_size']}" in card


@pytest.mark.parametrize("name", NAMES)
def test_a_base_policy_goes_the_way_of_a_model_that_was_downloaded(name: str, tmp_path: Path) -> None:
    section, downloaded = load(PARAMETERS).policy, shutil.copytree(BASE_POLICIES / name, tmp_path / "downloaded")
    found, same = (
        pretrained(section.model_copy(update={"model": model, "revision": None})) for model in (name, str(downloaded))
    )
    assert found is not None and same is not None and found.content == same.content
    assert pretrained_folder(found) == BASE_POLICIES / name
    for engine in ("vllm", "embedded"):
        require_usable(pretrained_folder(found), ModelUse(engine, 320))


@pytest.mark.parametrize("name", NAMES)
def test_a_base_policy_copies_made_up_names(name: str) -> None:
    frame = ChatFrame(load_tokenizer(BASE_POLICIES / name))
    model = AutoModelForCausalLM.from_pretrained(BASE_POLICIES / name, dtype=torch.float32, trust_remote_code=False)
    losses = []
    for number in range(20):
        # Another seed than that of the corpus, so that no name has been read.
        told = recall(20_261_123, number, facts=8, longest_name=12, write=answered)
        sequence = conversation_sequence(told, frame)
        tokens, trained = torch.tensor(sequence.tokens), torch.tensor(sequence.mask, dtype=torch.bool)[1:]
        with torch.no_grad():
            logits = model(tokens[None]).logits[0, :-1]
        losses.append(torch.nn.functional.cross_entropy(logits[trained], tokens[1:][trained]).item())
    # 0.1 nats when it was made; a policy that cannot copy has 2.5, after as many steps in a mixture of all sources.
    assert sum(losses) / len(losses) < 1.0
