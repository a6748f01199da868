"""Exact match, containment of the right answer, and the closed-book guess."""

from __future__ import annotations

import functools
from collections import Counter

from envs.search.facts import Fact, facts
from envs.search.questions import Question, questions
from envs.search.words import normalise

FURTHER_WORDS = 4
"""Words that an answer may have besides the alias: `Lyon is a city in France` has four, articles not counted."""


def is_exact(answer: str, fact: Fact) -> bool:
    """Whether an answer equals an alias of the fact's value, both in normal form."""
    return normalise(answer) in fact.aliases


def is_present(answer: str, fact: Fact) -> bool:
    """Whether an answer contains an alias as whole words and does not list candidates.

    It lists candidates when it is more than four words longer than the alias, or when it contains another value of the
    relation that is not a part of the alias (`Guinea` is a part of `Guinea-Bissau`), or another number where the value
    is a number.
    """
    words = normalise(answer).split()
    if len(words) > FURTHER_WORDS + max(len(alias.split()) for alias in fact.aliases):
        return False
    within = _positions_of(words, fact.aliases)
    return bool(within) and not any(
        _is_candidate(words, first, last, within, fact) for first, last in _stretches(len(words))
    )


def _positions_of(words: list[str], aliases: tuple[str, ...]) -> set[int]:
    """Indices of the words that belong to an alias."""
    return {
        position
        for first, last in _stretches(len(words))
        if " ".join(words[first:last]) in aliases
        for position in range(first, last)
    }


def _stretches(length: int) -> list[tuple[int, int]]:
    """Every run of words as (index of its first word, index after its last)."""
    return [(first, last) for first in range(length) for last in range(first + 1, length + 1)]


def _is_candidate(words: list[str], first: int, last: int, within: set[int], fact: Fact) -> bool:
    if within.issuperset(range(first, last)):
        return False
    phrase = " ".join(words[first:last])
    another_number = phrase.isdigit() and fact.aliases[0].replace(" ", "").isdigit()
    return another_number or phrase in _names(fact.relation)


@functools.cache
def _names(relation: str) -> frozenset[str]:
    """Every alias of every value of a relation, in normal form."""
    return frozenset(alias for fact in facts().all if fact.relation == relation for alias in fact.aliases)


@functools.cache
def vocabulary(relation: str) -> tuple[str, ...]:
    """Sorted values of a relation that questions may ask for."""
    return tuple(sorted({fact.value for fact in facts().all if fact.relation == relation and fact.readable}))


def majority(question: Question) -> str:
    """The most frequent answer of the training questions along the same relations."""
    return _majority(question.relations)


@functools.cache
def _majority(relations: tuple[str, ...]) -> str:
    alike = [question for question in questions(len(relations))["train"] if question.relations == relations]
    counts = Counter(question.final.value for question in alike)
    return min(counts, key=lambda value: (-counts[value], value), default=vocabulary(relations[-1])[0])
