"""The stage `base_tokenizer`: one for several worlds, with the tags of all their formats."""

from __future__ import annotations

from stage_samples import Small

from lab.pretraining.corpus import BaseTokenizerParameters, base_tokenizer
from tasks.prepare.imitation import texts_to_imitate
from turnwise.policy.tokenizer import load_tokenizer
from turnwise.store import Reference, default_store


def trained(small: Small, *formats: str) -> Reference:
    return base_tokenizer.fn(
        BaseTokenizerParameters(vocabulary=300, formats=formats),
        demonstrations={"lake": small.demonstrations, "another": small.demonstrations},
    )


def test_every_text_comes_back_and_the_tags_of_every_format_are_one_token_each(small: Small) -> None:
    loaded = load_tokenizer(default_store().folder(trained(small, "think-answer", "search")))
    assert len(loaded) <= 300
    for text in texts_to_imitate(small.demonstrations):
        assert loaded.decode(loaded.encode(text, add_special_tokens=False)) == text
    for tag in ("<think>", "</answer>", "<search>", "</search>"):
        assert len(loaded.encode(tag, add_special_tokens=False)) == 1


def test_the_same_demonstrations_give_the_same_tokenizer(small: Small) -> None:
    assert trained(small, "think-answer") == trained(small, "think-answer") != trained(small, "search")
