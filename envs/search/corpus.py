"""The corpus: one short passage per fact, and BM25 over them (Robertson et al., 1994; Lucene's variant, by bm25s).

Differs from bm25s' own retrieval: passages of equal score come in the order of the corpus on every machine, and a
passage that shares no word with the query is never a result.
"""

from __future__ import annotations

import functools
import logging
import threading
from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from envs.search.facts import Fact, facts
from envs.search.words import holds, normalise

MAXIMUM_RESULTS = 10
LONGEST_QUERY = 32
"""Limit on the words of a query; the rest is ignored, so that no query is slow."""
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

    def __init__(self, stated: tuple[Fact, ...]) -> None:
        import bm25s  # imported here: it takes seconds where numba is installed, and only searches need it

        logging.getLogger("bm25s").setLevel(logging.WARNING)  # bm25s sets it to DEBUG

        sentences = [fact.sentence for fact in stated]
        self.passages: tuple[Passage, ...] = tuple(
            Passage(number, fact, sentence, normalise(sentence))
            for number, (fact, sentence) in enumerate(zip(stated, sentences, strict=True))
        )
        self._index = bm25s.BM25(backend="numpy")
        self._index.index([_searched(passage.normal) for passage in self.passages], show_progress=False)
        self._holding_word: dict[str, list[int]] = defaultdict(list)
        for passage in self.passages:
            for word in dict.fromkeys(passage.normal.split()):
                self._holding_word[word].append(passage.number)
        self._numbers = {(fact.entity, fact.relation): number for number, fact in enumerate(stated)}
        self._ranks: dict[Fact, int] = {}

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

    def mentioning(self, phrase: str) -> list[Passage]:
        """Every passage that contains a phrase (in normal form) as whole words, in the order of the corpus."""
        lists = [self._holding_word.get(word, []) for word in phrase.split()]
        shortest = min(lists, key=len, default=[])
        return [self.passages[number] for number in shortest if holds(self.passages[number].normal, phrase)]

    def _scores(self, query: str) -> np.ndarray:
        """BM25 score of each passage for a query in normal form, [passages]; 0 where they share no word."""
        words = _searched(query)[:LONGEST_QUERY]
        return self._index.get_scores(words) if words else np.zeros(len(self.passages), dtype=np.float32)


def _searched(normal: str) -> list[str]:
    return [word for word in normal.split() if word not in _UNSEARCHED]


_building = threading.Lock()


def corpus() -> Corpus:
    """The corpus, built once per process (about a second), also when the threads of many episodes ask at once."""
    with _building:
        return _corpus()


@functools.cache
def _corpus() -> Corpus:
    return Corpus(facts().all)
