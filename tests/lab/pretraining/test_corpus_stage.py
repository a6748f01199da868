"""The stage `corpus`: what is trained on in each source."""

from __future__ import annotations

import numpy as np
from pretraining_samples import small_corpus
from stage_samples import Small

from lab.pretraining.corpus import RECALLS, REPETITIONS, read_corpus
from tasks.prepare.imitation import sequences_to_imitate
from turnwise.policy.tokenizer import ChatFrame, load_tokenizer
from turnwise.store import default_store


def test_it_has_the_demonstrations_and_all_kinds_of_copying(small: Small) -> None:
    made = small_corpus(small, observed_share=0.0, context_tokens=320)
    sources = read_corpus(made)
    assert sorted(sources) == ["lake", RECALLS, REPETITIONS]
    shown = sequences_to_imitate(small.play, small.tokenizer, small.demonstrations)
    assert np.array_equal(sources["lake"].tokens, shown.tokens)
    assert np.array_equal(sources["lake"].mask, shown.mask)
    metrics = default_store().metrics(made)
    assert metrics["sequences/lake"] == len(shown)
    assert metrics["tokens/lake"] == len(shown.tokens)


def test_of_a_share_all_tokens_but_the_first_are_trained_on(small: Small) -> None:
    lake = read_corpus(small_corpus(small, observed_share=1.0))["lake"]
    assert np.array_equal(np.flatnonzero(~lake.mask), lake.offsets[:-1])
    some = read_corpus(small_corpus(small, observed_share=0.5))["lake"]
    assert 0 < sum(row[1:].all() for row in some.rows(some.mask)) < len(some)


def test_no_sequence_is_longer_than_the_context_and_none_begins_with_a_trained_token(small: Small) -> None:
    for sequences in read_corpus(small_corpus(small, context_tokens=60)).values():
        assert sequences.lengths.max() <= 60
        assert not sequences.mask[sequences.offsets[:-1]].any()


def test_a_recall_is_answered_in_the_format_of_the_world(small: Small) -> None:
    recalls = read_corpus(small_corpus(small))[RECALLS]
    frame = ChatFrame(load_tokenizer(default_store().folder(small.tokenizer)))
    first = recalls.rows(recalls.tokens)[0][recalls.rows(recalls.turn_of_token)[0] == 0].tolist()
    said = frame.decode(first)
    assert said.startswith("<think>")
    assert said.endswith("</answer>")


def test_the_same_parameters_give_the_same_corpus_and_another_seed_another(small: Small) -> None:
    assert small_corpus(small) == small_corpus(small) != small_corpus(small, seed=1)
