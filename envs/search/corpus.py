"""The corpus: one short passage per fact, and BM25 over them (Robertson et al., 1994; Lucene's variant).

    score(word, passage) = log(1 + (N - n + 0.5) / (n + 0.5)) * f / (k1 * (1 - b + b * length / mean length) + f)

with N passages, n of which have the word, and f times in this one; k1 = 1.5 and b = 0.75. A query's score is the sum
over its words. The scores are those of the package bm25s to the bit (tests/envs/search/test_search_corpus.py), which
indexes every word at once and imports numba: seconds of each process. Here a word is scored when it is first searched.

Passages of equal score come in the order of the corpus on every machine, and a passage that shares no word with the
query is never a result.
"""

from __future__ import annotations

import functools
import math
import threading
from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from envs.search.facts import Fact, facts
from envs.search.words import holds, normalise

MAXIMUM_RESULTS = 10
LONGEST_QUERY = 32
"""Limit on the words of a query; the rest is ignored, so that no query is slow."""
_SATURATION, _LENGTH_SHARE = 1.5, 0.75
"""BM25's k1 and b."""
_UNSEARCHED = frozenset({"of", "is", "in", "what", "which"})
"""Words too frequent to search for: most passages or questions have them. The normal form has no articles anyway."""


@dataclass(frozen=True)
class Passage:
    """One sentence, the fact that it states, its normal form, and `number`, its index in the corpus."""

    number: int
    fact: Fact
    text: str
    normal: str


class Corpus:
    """All passages and their index."""

    def __init__(self, corpus_facts: tuple[Fact, ...]) -> None:
        self._facts = corpus_facts
        self._texts = [fact.sentence for fact in corpus_facts]
        self._normals = [normalise(text) for text in self._texts]
        self._holding_word: dict[str, list[int]] = defaultdict(list)
        """Numbers of the passages that have a word, in order; one that has it twice stands there twice."""
        for number, normal in enumerate(self._normals):
            for word in normal.split():
                self._holding_word[word].append(number)
        self._numbers = {(fact.entity, fact.relation): number for number, fact in enumerate(corpus_facts)}
        self._ranks: dict[Fact, int] = {}
        self._scored: dict[str, tuple[np.ndarray, np.ndarray]] = {}

    @cached_property
    def passages(self) -> tuple[Passage, ...]:
        """Every passage, in the order of the facts."""
        parts = zip(self._facts, self._texts, self._normals, strict=True)
        return tuple(Passage(number, fact, text, normal) for number, (fact, text, normal) in enumerate(parts))

    def search(self, query: str, count: int) -> tuple[Passage, ...]:
        """The `count` best passages for a query in normal form, best first; fewer if fewer share a word with it."""
        scores = self._scores(query)
        results: list[Passage] = []
        while len(results) < count and scores[best := int(scores.argmax())] > 0:  # on ties argmax takes the first
            results.append(self.passages[best])
            scores[best] = 0
        return tuple(results)

    def rank(self, fact: Fact) -> int:
        """Rank, from 1, of a fact's passage in the results for the fact's own query, over the whole corpus."""
        if fact not in self._ranks:
            number = self._numbers[fact.entity, fact.relation]
            scores = self._scores(normalise(fact.query))
            better = np.count_nonzero(scores > scores[number]) + np.count_nonzero(scores[:number] == scores[number])
            self._ranks[fact] = int(better) + 1
        return self._ranks[fact]

    def mentioning(self, phrase: str) -> list[str]:
        """The normal form of every passage that contains a phrase as whole words, in the order of the corpus."""
        lists = [self._holding_word.get(word, []) for word in phrase.split()]
        shortest: list[int] = min(lists, key=len, default=[])
        return [self._normals[number] for number in dict.fromkeys(shortest) if holds(self._normals[number], phrase)]

    def _scores(self, query: str) -> np.ndarray:
        """BM25 score of each passage for a query in normal form, [passages]; 0 where they share no word."""
        scores = np.zeros(len(self._facts), dtype=np.float32)
        for word in _searched(query)[:LONGEST_QUERY]:
            if word in self._holding_word:
                numbers, summands = self._scores_of(word)
                scores[numbers] += summands
        return scores

    def _scores_of(self, word: str) -> tuple[np.ndarray, np.ndarray]:
        """Numbers of the passages that have a word, and its score in each, both [passages with the word]."""
        if word not in self._scored:
            numbers, frequencies = np.unique(np.array(self._holding_word[word]), return_counts=True)
            inverse = np.float32(math.log(1 + (len(self._facts) - len(numbers) + 0.5) / (len(numbers) + 0.5)))
            lengths = self._lengths[numbers]
            saturation = _SATURATION * ((1 - _LENGTH_SHARE) + _LENGTH_SHARE * lengths / self._lengths.mean())
            scores = inverse * (frequencies.astype(np.float32) / (saturation + frequencies))
            self._scored[word] = numbers, scores.astype(np.float32)
        return self._scored[word]

    @cached_property
    def _lengths(self) -> np.ndarray:
        """Searched words of each passage, [passages]."""
        return np.array([len(_searched(normal)) for normal in self._normals])


def _searched(normal: str) -> list[str]:
    return [word for word in normal.split() if word not in _UNSEARCHED]


_building = threading.Lock()


def corpus() -> Corpus:
    """The corpus, built once per process, also when the threads of many episodes ask at once."""
    with _building:
        return _corpus()


@functools.cache
def _corpus() -> Corpus:
    return Corpus(facts().all)
