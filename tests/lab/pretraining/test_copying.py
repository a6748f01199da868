"""Sequences that teach copying: what is trained on can be predicted, and nothing repeats from one to the next."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lab.pretraining.corpus import made_up_name, recall, repetition
from turnwise import seeding

SEEDS = st.integers(0, 2**32)


@given(seed=SEEDS, number=st.integers(0, 1000), longest=st.integers(4, 40), length=st.integers(20, 80))
def test_every_trained_token_of_a_repetition_follows_the_token_before_it_in_the_span(
    seed: int, number: int, longest: int, length: int
) -> None:
    sequence = repetition(seed, number, range(5, 300), longest, length)
    assert len(sequence.tokens) == length
    span = sequence.tokens[:longest]
    assert not any(sequence.mask[:4])
    for place in np.flatnonzero(sequence.mask):
        before, token = sequence.tokens[place - 1 : place + 1]
        assert (before, token) in itertools.pairwise(span)


@given(seed=SEEDS, number=st.integers(0, 1000))
def test_a_recall_asks_for_facts_that_it_has_told(seed: int, number: int) -> None:
    conversation = recall(seed, number, facts=6, longest_name=10, write=lambda name, value: f"{name}={value}")
    *told, question = conversation.exchanges[0].observation.split("\n")
    facts = dict(line.split(": ") for line in told)
    assert 2 <= len(facts) <= 6
    assert 1 <= len(conversation.exchanges) <= 3
    questions = [question, *(exchange.observation for exchange in conversation.exchanges[1:])]
    for asked, exchange in zip(questions, conversation.exchanges, strict=True):
        name = asked.removesuffix("?")
        assert exchange.reply == f"{name}={facts[name]}"


@given(seed=SEEDS, longest=st.integers(2, 30))
def test_a_made_up_name_is_no_longer_than_asked_for(seed: int, longest: int) -> None:
    assert 2 <= len(made_up_name(seeding.generator(seed, "name"), longest)) <= longest


def test_the_same_number_gives_the_same_sequence_and_another_number_another() -> None:
    def first(number: int) -> object:
        return recall(3, number, facts=4, longest_name=8, write=lambda name, value: value)

    assert first(1) == first(1) != first(2)
    again = repetition(3, 1, range(100), 8, 30)
    assert repetition(3, 1, range(100), 8, 30) == again != repetition(3, 2, range(100), 8, 30)
