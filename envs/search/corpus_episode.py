"""One episode on the user's corpus (a question, searches and one answer), and its baseline policies."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from envs.search.actions import LEGAL, read_action
from envs.search.answers import FURTHER_WORDS
from envs.search.question_files import OpenQuestion
from envs.search.retriever import Document, Retriever
from envs.search.squad import exact_match, f1
from envs.search.words import holds, normalise
from turnwise import seeding
from turnwise.world import Environment, Observation, Remaining, ScriptedAction, Step

UNKNOWN = "unknown"


class CorpusEnvironment(Environment):
    """One episode. `others`: the questions of the file, from which the random policy draws its text."""

    def __init__(
        self,
        question: OpenQuestion,
        retriever: Retriever,
        passages: int,
        passage_words: int,
        others: Sequence[OpenQuestion],
    ) -> None:
        self._question = question
        self._retriever = retriever
        self._passages = passages
        self._passage_words = passage_words
        self._others = others
        self._shown_texts: dict[str, str] = {}  # the shown text of each document, by its id
        self._place = 0  # rank of the passage with the answer, in the results that showed it first
        self._queries: set[str] = set()
        self._searches = 0
        self._ended = False
        self._solved = False

    def reset(self) -> Observation:
        """The question alone."""
        return self._observe(self._question.text)

    def step(self, action: str) -> Step:
        """Play `search[QUERY]` or `answer[TEXT]`; other text changes nothing and is answered with the legal actions.

        Raises the retriever's exception when it cannot be reached.
        """
        if self._ended:
            return self._refuse("The episode is over.")
        parsed_action = read_action(action)
        if parsed_action is None:
            return self._refuse(f"Not an action. {LEGAL}")
        verb, text = parsed_action
        return self._search(text) if verb == "search" else self._answer(text)

    def oracle(self, remaining: Remaining) -> ScriptedAction:
        """Search the question's own words, then also its article's title, and give an answer that a result contains.

        The oracle knows the aliases of the answer, to see whether a result contains one, and the title of the article;
        it never gives an answer that it was not shown. If no search shows one, it answers "unknown".
        """
        answer = self._alias_found
        if answer is not None:
            return ScriptedAction(f"passage {self._place} says it", (f"answer[{answer}]",))
        queries = [query for query in oracle_queries(self._question) if normalise(query) not in self._queries]
        if remaining.turns <= 1 or not queries:
            return ScriptedAction("no passage says it", (f"answer[{UNKNOWN}]",))
        return ScriptedAction("search for it", (f"search[{queries[0]}]",))

    def random(self, generator: np.random.Generator, remaining: Remaining) -> ScriptedAction:
        """A search or an answer with equal probability; with one turn left, an answer.

        A search is for the words of a uniformly random question of the file, of any split; an answer is the first
        answer of one.
        """
        other = self._others[int(generator.integers(len(self._others)))]
        if remaining.turns > 1 and generator.integers(2) == 0:
            return ScriptedAction("a random search", (f"search[{other.text}]",))
        return ScriptedAction("a random answer", (f"answer[{other.answers[0]}]",))

    def _search(self, query: str) -> Step:
        normal, metrics = normalise(query), {"searches": 1.0}
        self._searches += 1
        rewards = {"searched": 1.0, "search_count": float(self._searches)}
        repeated = normal in self._queries
        if repeated:
            metrics["repeated_search"] = 1.0
        documents = self._retriever.search(query, self._passages) if normal else ()
        if normal:
            self._queries.add(normal)
        if not documents:
            metrics["failed_search"] = 1.0
            text = "Nothing was found." if normal else "The query is empty: write what to search for."
            return Step(self._observe(text), rewards, effective=False, metrics=metrics)
        known_before, shown_before = self._alias_found, len(self._shown_texts)
        for document in documents:
            self._shown_texts.setdefault(document.id, shown_text(document, self._passage_words))
        if not repeated:
            rewards["tool_execution"] = 1.0
        if known_before is None and self._alias_found is not None:
            rewards["answer_in_results"] = 1.0
            self._place = self._place_of_answer(documents)
        lines = "\n".join(
            f"{place}. {self._shown_texts[document.id]}" for place, document in enumerate(documents, start=1)
        )
        return Step(self._observe(lines), rewards, effective=len(self._shown_texts) > shown_before, metrics=metrics)

    def _answer(self, text: str) -> Step:
        answers = self._question.answers
        self._ended = True
        self._solved = exact_match(text, answers) == 1
        rewards = {
            "answered": 1.0,
            "exact_match": float(self._solved),
            "answer_present": float(is_present(text, answers)),
        }
        verdict = self._observe("Right." if self._solved else "Wrong.")
        metrics = {"f1": f1(text, answers)}
        return Step(verdict, rewards, terminated=True, success=self._solved, metrics=metrics)

    def _refuse(self, text: str) -> Step:
        return Step(self._observe(text), terminated=self._ended, valid=False, effective=False, success=self._solved)

    def _observe(self, text: str) -> Observation:
        digest = seeding.derive(0, "search_corpus shown", *sorted(self._shown_texts))
        return Observation(text, state=f"{self._question.id} shown: {digest:x}")

    def _place_of_answer(self, documents: Sequence[Document]) -> int:
        """Rank, from 1, of the first result that contains the answer."""
        answers = self._question.answers
        holding = (alias_in([self._shown_texts[document.id]], answers) is not None for document in documents)
        return 1 + list(holding).index(True)

    @property
    def _alias_found(self) -> str | None:
        return alias_in(self._shown_texts.values(), self._question.answers)


def shown_text(document: Document, words: int) -> str:
    """The part of a document that is shown: its title, and the first `words` words of its text."""
    text = " ".join(document.text.split()[:words])
    return f"{document.title}: {text}" if document.title else text


def oracle_queries(question: OpenQuestion) -> list[str]:
    """Queries of the oracle, in order. None contains an answer that the question does not contain itself."""
    titled = f"{question.title} {question.text}"
    if not question.title or alias_in([question.title], question.answers) is not None:
        return [question.text]
    return [question.text, titled]


def alias_in(texts: Iterable[str], answers: Iterable[str]) -> str | None:
    """The first answer that one of the texts contains as whole words, or None."""
    normal = [normalise(text) for text in texts]
    return next((alias for alias in answers if any(holds(text, normalise(alias)) for text in normal)), None)


def is_present(answer: str, aliases: Sequence[str]) -> bool:
    """Whether an answer contains an alias as whole words and at most four other words: a list of guesses has more."""
    normal = normalise(answer)
    room = FURTHER_WORDS + max(len(normalise(alias).split()) for alias in aliases)
    return len(normal.split()) <= room and any(holds(normal, normalise(alias)) for alias in aliases)
