"""The corpus: one short passage per fact, and BM25 over them (Robertson et al., 1994; Lucene's variant, by bm25s).

What differs from bm25s' own retrieval: passages of equal score are in the order of the corpus, whatever the machine,
and a passage that has no word of the query is never a result.
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
"""Words of a query that are read; what follows is ignored, so that no query is slow."""
_UNSEARCHED = frozenset({"of", "is", "in", "what", "which"})
"""Words that most passages or questions have; articles are not in the normal form."""


@dataclass(frozen=True)
class Passage:
    """One sentence, the fact it states, and its normal form. `number` is its place in the corpus."""

    number: int
    fact: Fact
    text: str
    normal: str


class Corpus:
    """All passages, and the index over them."""

    def __init__(self, stated: tuple[Fact, ...]) -> None:
        import bm25s  # takes seconds where numba is installed: only those who search wait for it

        logging.getLogger("bm25s").setLevel(logging.WARNING)  # it asks for DEBUG

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
        """The `count` passages that fit a query in normal form best, best first; fewer when fewer have a word of it."""
        scores = self._scores(query)
        results: list[Passage] = []
        while len(results) < count and scores[best := int(scores.argmax())] > 0:  # of equal ones argmax takes the first
            results.append(self.passages[best])
            scores[best] = 0
        return tuple(results)

    def rank(self, fact: Fact) -> int:
        """The place, from 1, of a fact's passage among all passages by how well they fit the fact's own query."""
        if fact not in self._ranks:
            number = self._numbers[fact.entity, fact.relation]
            scores = self._scores(normalise(fact.query))
            better = np.count_nonzero(scores > scores[number]) + np.count_nonzero(scores[:number] == scores[number])
            self._ranks[fact] = int(better) + 1
        return self._ranks[fact]

    def mentioning(self, phrase: str) -> list[Passage]:
        """Every passage in which a phrase in normal form stands as whole words, in the order of the corpus."""
        lists = [self._holding_word.get(word, []) for word in phrase.split()]
        shortest = min(lists, key=len, default=[])
        return [self.passages[number] for number in shortest if holds(self.passages[number].normal, phrase)]

    def _scores(self, query: str) -> np.ndarray:
        """How well each passage fits a query in normal form: 0 where it has no word of it."""
        words = _searched(query)[:LONGEST_QUERY]
        return self._index.get_scores(words) if words else np.zeros(len(self.passages), dtype=np.float32)


def _searched(normal: str) -> list[str]:
    return [word for word in normal.split() if word not in _UNSEARCHED]


_building = threading.Lock()


def corpus() -> Corpus:
    """The corpus of this process: built once (about a second), also when many episodes' threads ask at once."""
    with _building:
        return _corpus()


@functools.cache
def _corpus() -> Corpus:
    return Corpus(facts().all)
