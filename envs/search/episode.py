"""One episode (a question, searches and one answer), and its baseline policies."""

from __future__ import annotations

import numpy as np

from envs.search.actions import LEGAL, read_action
from envs.search.answers import is_exact, is_present, majority, vocabulary
from envs.search.corpus import Corpus, Passage
from envs.search.facts import CITY_RELATIONS, COUNTRY_RELATIONS, PHRASES, facts
from envs.search.questions import Question
from envs.search.words import holds, normalise
from turnwise.world import Environment, Observation, Remaining, ScriptedAction, Step


class SearchEnvironment(Environment):
    """One episode. Facts of the chain count as known once a result has shown them, whatever the query was."""

    def __init__(self, question: Question, corpus: Corpus, passages: int) -> None:
        self._question = question
        self._corpus = corpus
        self._passages = passages
        self._stated_facts: set[int] = set()  # indices into the question's chain whose fact a result has stated
        self._shown_passages: set[int] = set()  # numbers of the passages shown
        self._place = 0  # rank of the passage that states the answer, in the results that showed it last
        self._queries: set[str] = set()
        self._ended = False
        self._solved = False

    def reset(self) -> Observation:
        """The question alone."""
        return self._observe(self._question.text)

    def step(self, action: str) -> Step:
        """Play `search[QUERY]` or `answer[TEXT]`; other text changes nothing and is answered with the legal actions."""
        if self._ended:
            return self._refuse("The episode is over.")
        parsed_action = read_action(action)
        if parsed_action is None:
            return self._refuse(f"Not an action. {LEGAL}")
        verb, text = parsed_action
        return self._search(normalise(text)) if verb == "search" else self._answer(text)

    def oracle(self, remaining: Remaining) -> ScriptedAction:
        """Search the facts of the chain one by one, and give the answer that the results or the question state.

        The oracle reads the hidden chain to know what to search for, never to know a value that it has not seen: in its
        last turn it guesses as `closed_book` does. So a learner that imitates it is never shown knowledge out of
        nowhere.
        """
        facts = () if self._question.stated else range(len(self._question.facts))
        unknown = next((place for place in facts if place not in self._stated_facts), None)
        if unknown is None:
            final = self._question.final
            # A thought that a reader of the conversation can check.
            where = "the question says it" if self._question.stated else f"passage {self._place} says it"
            return ScriptedAction(where, (f"answer[{final.value}]",))
        if remaining.turns <= 1:
            return self.closed_book()
        fact = self._question.facts[unknown]
        return ScriptedAction(f"find the {PHRASES[fact.relation]}", (f"search[{fact.query}]",))

    def closed_book(self) -> ScriptedAction:
        """Answer at once without searching: the most frequent answer of training questions of the same form."""
        guess = majority(self._question)
        return ScriptedAction(f"guess the {PHRASES[self._question.final.relation]}", (f"answer[{guess}]",))

    def random(self, generator: np.random.Generator, remaining: Remaining) -> ScriptedAction:
        """A search or an answer with equal probability; with one turn left, an answer.

        A search is for a uniformly random city or country, of any split, and a uniformly random one of its relations;
        an answer is uniform over the values of the question's last relation.
        """
        if remaining.turns > 1 and generator.integers(2) == 0:
            all_facts = facts()
            entity = all_facts.entities[int(generator.integers(len(all_facts.entities)))]
            relations = CITY_RELATIONS if (entity, "country") in all_facts.by_identity else COUNTRY_RELATIONS
            phrase = PHRASES[relations[int(generator.integers(len(relations)))]]
            return ScriptedAction("a random search", (f"search[{entity} {phrase}]",))
        values = vocabulary(self._question.final.relation)
        return ScriptedAction("a random answer", (f"answer[{values[int(generator.integers(len(values)))]}]",))

    def decide(self, baseline: str, generator: np.random.Generator, remaining: Remaining) -> ScriptedAction:
        """Action of a baseline policy by name: random, oracle or closed-book."""
        return self.closed_book() if baseline == "closed-book" else super().decide(baseline, generator, remaining)

    def _search(self, query: str) -> Step:
        metrics = {"searches": 1.0}
        if self._question.stated or self._answer_was_found:
            metrics["needless_search"] = 1.0
        repeated = query in self._queries
        if repeated:
            metrics["repeated_search"] = 1.0
        if repeated or "needless_search" in metrics:
            metrics["superfluous_search"] = 1.0
        self._queries.add(query)
        results = self._corpus.search(query, self._passages)
        if not results:
            metrics["failed_search"] = 1.0
            text = "Nothing was found." if query else "The query is empty: write what to search for."
            return Step(self._observe(text), effective=False, metrics=metrics)
        rewards = {} if repeated else {"tool_execution": 1.0}
        effective = not self._shown_passages.issuperset(passage.number for passage in results)
        if self._take_in(results):
            rewards["answer_in_results"] = 1.0
        lines = "\n".join(f"{place}. {passage.text}" for place, passage in enumerate(results, start=1))
        return Step(self._observe(lines), rewards, effective=effective, metrics=metrics)

    def _take_in(self, results: tuple[Passage, ...]) -> bool:
        """Record the results; whether they are the first with a passage that states the final fact.

        The passage must contain the fact's value as whole words.
        """
        known_before = self._answer_was_found
        for number, passage in enumerate(results, start=1):
            self._shown_passages.add(passage.number)
            for place, fact in enumerate(self._question.facts):
                if passage.fact == fact and any(holds(passage.normal, alias) for alias in fact.aliases):
                    self._stated_facts.add(place)
                    if fact == self._question.final:
                        self._place = number
        return self._answer_was_found and not known_before

    def _answer(self, text: str) -> Step:
        final = self._question.final
        self._ended = True
        self._solved = is_exact(text, final)
        rewards = {"exact_match": float(self._solved), "answer_present": float(is_present(text, final))}
        verdict = self._observe("Right." if self._solved else "Wrong.")
        return Step(verdict, rewards, terminated=True, success=self._solved)

    def _refuse(self, text: str) -> Step:
        return Step(self._observe(text), terminated=self._ended, valid=False, effective=False, success=self._solved)

    def _observe(self, text: str) -> Observation:
        places = ",".join(str(place) for place in sorted(self._stated_facts))
        return Observation(text, state=f"{self._question.id} known: {places or 'nothing'}")

    @property
    def _answer_was_found(self) -> bool:
        return len(self._question.facts) - 1 in self._stated_facts
