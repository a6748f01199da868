"""Questions: chains of one to three facts, the rule for which are asked, and the split that a question belongs to.

A question is on one entity, a city or a country, and belongs to the split of that entity. A chain is asked when

* its entity and all its values are short plain names, and each value is the next fact's entity;
* the question does not contain the answer;
* with more than one hop, no passage of the corpus that names the entity contains the answer: the capital of the
  country of Mombasa is not asked, since "The time zone of Mombasa is Africa/Nairobi." would suffice;
* in a seeded order, it is among the first `QUESTIONS_PER_ANSWER` along the same relations that have this answer, so
  that knowing the frequent answers gains little; and among the first `QUESTIONS_PER_CHAIN` of those.
"""

from __future__ import annotations

import functools
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import islice

from envs.search.corpus import corpus
from envs.search.facts import CITY_RELATIONS, COUNTRY_RELATIONS, DATA, PHRASES, Fact, facts
from envs.search.words import holds, normalise
from turnwise import seeding
from turnwise.world import SPLITS, Split

VERSION = "1"
FAMILY = f"search/{VERSION}/{DATA}/"
"""Prefix of every task id."""
STATED = "/stated"
"""Suffix of the id of a question that states its facts."""
MAXIMUM_HOPS = 3
QUESTIONS_PER_ANSWER = 200
QUESTIONS_PER_CHAIN = 12000

_OF_NEIGHBOUR = tuple(relation for relation in COUNTRY_RELATIONS if relation != "only_neighbour")
_OF_CAPITAL = ("time_zone", "population")
CHAINS: Mapping[int, tuple[tuple[str, ...], ...]] = {
    1: (*((relation,) for relation in CITY_RELATIONS), *((relation,) for relation in COUNTRY_RELATIONS)),
    2: (
        *(("country", relation) for relation in COUNTRY_RELATIONS),
        *(("capital", relation) for relation in _OF_CAPITAL),
        *(("only_neighbour", relation) for relation in _OF_NEIGHBOUR),
    ),
    3: (
        *(("country", "capital", relation) for relation in _OF_CAPITAL),
        *(("country", "only_neighbour", relation) for relation in _OF_NEIGHBOUR),
    ),
}
"""Relations from the question's entity to the answer, by number of hops."""


@dataclass(frozen=True)
class Question:
    """A chain of facts as a question on the first fact's entity. `stated`: the facts are stated before the question."""

    facts: tuple[Fact, ...]
    stated: bool = False

    @property
    def entity(self) -> str:
        """The entity that the question is about."""
        return self.facts[0].entity

    @property
    def relations(self) -> tuple[str, ...]:
        """The relations from the entity to the answer."""
        return tuple([fact.relation for fact in self.facts])

    @property
    def final(self) -> Fact:
        """The fact whose value is the answer."""
        return self.facts[-1]

    @cached_property
    def id(self) -> str:
        """Permanent id, such as `search/1/geonames-3.0.2/Nairobi:country:currency`."""
        return f"{FAMILY}{':'.join((self.entity, *self.relations))}{STATED if self.stated else ''}"

    @cached_property
    def text(self) -> str:
        """The question in English."""
        asked = self.entity
        for relation in self.relations:
            asked = f"the {PHRASES[relation]} of {asked}"
        question = f"In which country is {self.entity}?" if self.relations == ("country",) else f"What is {asked}?"
        return " ".join([*(fact.sentence for fact in self.facts if self.stated), question])

    @property
    def split(self) -> Split:
        """The split of the question's entity."""
        return split_of(self.entity)


@functools.cache
def split_of(entity: str) -> Split:
    """The split that an entity belongs to, by a digest of its name, in the shares 7 train, 1 validation, 2 test."""
    draw = seeding.derive(0, "search split", entity) % 10
    return "train" if draw < 7 else "validation" if draw == 7 else "test"


def find(task_id: str) -> Question:
    """The question that a task id names. Raises ValueError for an id that is not of this data set."""
    name = task_id.removeprefix(FAMILY)
    stated = name.endswith(STATED)
    entity, *relations = name.removesuffix(STATED).split(":")
    chain = facts().chain(entity, tuple(relations)) if task_id.startswith(FAMILY) else None
    if not chain:
        raise ValueError(f"a task of this world must be named like '{FAMILY}Nairobi:country'; found {task_id!r}")
    return Question(chain, stated)


_building = threading.Lock()


def questions(hops: int) -> Mapping[Split, tuple[Question, ...]]:
    """All questions with this number of hops, by split, in a seeded order. Built once per process."""
    with _building:
        return _questions(hops)


@functools.cache
def _questions(hops: int) -> Mapping[Split, tuple[Question, ...]]:
    found = [
        question
        for chain in CHAINS[hops]
        for question in islice(_first_of_each_answer(_askable(chain)), QUESTIONS_PER_CHAIN)
    ]
    found.sort(key=lambda question: seeding.derive(0, "search order", question.id))
    of_split: dict[Split, list[Question]] = {split: [] for split in SPLITS}
    for question in found:
        of_split[question.split].append(question)
    return {split: tuple(questions) for split, questions in of_split.items()}


def _askable(relations: tuple[str, ...]) -> Iterator[Question]:
    known = facts()
    for entity in known.entities:
        chain = known.chain(entity, relations)
        if chain is not None and all(fact.readable for fact in chain):
            question = Question(chain)
            text = normalise(question.text)
            gives_itself_away = any(holds(text, alias) for alias in question.final.aliases)
            if not gives_itself_away and not _has_a_shortcut(question):
                yield question


def _has_a_shortcut(question: Question) -> bool:
    """Whether a single passage leads from the entity to the answer of a question with several hops."""
    if len(question.facts) == 1:
        return False
    return any(holds(normal, alias) for normal in _naming(question.entity) for alias in question.final.aliases)


@functools.cache
def _naming(entity: str) -> tuple[str, ...]:
    """The passages that name an entity, in normal form: they are the same for every chain that begins with it."""
    return tuple(passage.normal for passage in corpus().mentioning(normalise(entity)))


def _first_of_each_answer(found: Iterator[Question]) -> Iterator[Question]:
    counts: Counter[str] = Counter()
    for question in sorted(found, key=lambda question: seeding.derive(0, "search choice", question.id)):
        counts[question.final.value] += 1
        if counts[question.final.value] <= QUESTIONS_PER_ANSWER:
            yield question
