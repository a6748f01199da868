"""The stage `tokenizer`: trained on the demonstrations, or that of a pretrained policy."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from stage_samples import Small

from tasks.playing import frame_of
from tasks.prepare.imitation import texts_to_imitate
from tasks.prepare.materials import TokenizerParameters, tokenizer
from turnwise.agent.formats import format_class
from turnwise.config.schema import Policy
from turnwise.errors import ConfigurationError
from turnwise.policy.pretrained import pretrained
from turnwise.policy.tokenizer import ChatFrame, load_tokenizer
from turnwise.store import Reference, default_store


def trained(small: Small, **changes: object) -> Reference:
    values = {"pretrained": None, "vocabulary": 300, "format": "think-answer", **changes}
    return tokenizer.fn(TokenizerParameters(**values), demonstrations=small.demonstrations)


def test_every_text_of_the_demonstrations_comes_back_from_its_tokens(small: Small) -> None:
    loaded = load_tokenizer(default_store().folder(trained(small)))
    assert len(loaded) <= 300
    texts = texts_to_imitate(small.demonstrations)
    assert len(texts) > 12
    for text in texts:
        assert loaded.decode(loaded.encode(text, add_special_tokens=False)) == text


def test_each_tag_of_the_format_is_one_token(small: Small) -> None:
    loaded = load_tokenizer(default_store().folder(trained(small)))
    for tag in format_class("think-answer").tags:
        assert len(loaded.encode(tag, add_special_tokens=False)) == 1
    others = load_tokenizer(default_store().folder(trained(small, format="react")))
    assert len(others.encode("<answer>", add_special_tokens=False)) > 1


def test_the_same_demonstrations_give_the_same_tokenizer_and_a_larger_vocabulary_another(small: Small) -> None:
    assert trained(small) == trained(small) == small.tokenizer
    assert trained(small, vocabulary=280) != small.tokenizer


@pytest.fixture
def model(small: Small, tmp_path: Path) -> Policy:
    """A pretrained policy in a directory."""
    folder = tmp_path / "model"
    folder.mkdir()
    for reference in (small.policy, small.tokenizer):
        for path in default_store().folder(reference).iterdir():
            if path.name != "manifest.json":
                (folder / path.name).write_bytes(path.read_bytes())
    return small.experiment.policy.model_copy(update={"model": str(folder)})


def test_that_of_a_pretrained_policy_is_taken_as_it_is(small: Small, model: Policy) -> None:
    found = load_tokenizer(default_store().folder(trained(small, pretrained=pretrained(model), vocabulary=256)))
    own = load_tokenizer(default_store().folder(small.tokenizer))
    assert len(found) == len(own)
    assert found.encode("Left || Down") == own.encode("Left || Down")
    assert ChatFrame(found).opening("system", "seen") == ChatFrame(own).opening("system", "seen")


def test_switches_of_a_pretrained_policys_template_are_set_in_the_template(small: Small, model: Policy) -> None:
    template = Path(model.model) / "chat_template.jinja"
    template.write_text(
        template.read_text() + "{% if thinking is defined and not thinking %}<think></think>{% endif %}"
    )
    found = pretrained(model)
    plain = frame_of(trained(small, pretrained=found))
    switched = frame_of(trained(small, pretrained=found, chat_template_kwargs={"thinking": False}))
    assert plain.opening(None, "seen") == frame_of(small.tokenizer).opening(None, "seen")
    assert (
        switched.decode(switched.opening(None, "seen")) == plain.decode(plain.opening(None, "seen")) + "<think></think>"
    )


@pytest.mark.parametrize("named", [1, [0, 1]])
def test_replies_end_at_the_end_tokens_that_a_pretrained_policy_was_published_with(
    small: Small, model: Policy, named: object
) -> None:
    (Path(model.model) / "generation_config.json").write_text(json.dumps({"eos_token_id": named}))
    own, taken = frame_of(small.tokenizer), frame_of(trained(small, pretrained=pretrained(model)))
    assert own.end_tokens == (1,), "the end token of the template, as trained here"
    assert taken.end_tokens == ((1,) if named == 1 else (1, 0))


def test_a_pretrained_policy_that_changes_while_it_is_read_is_refused(small: Small, model: Policy) -> None:
    before = pretrained(model)
    (Path(model.model) / "config.json").write_text("{}")
    with pytest.raises(ConfigurationError, match=r"policy\.model.*TW-changed-file"):
        trained(small, pretrained=before)
