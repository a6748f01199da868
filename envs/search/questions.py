"""Questions: chains of one to three facts, the rule for which are asked, and the split that a question belongs to.

A question is on one entity, a city or a country, and belongs to the split of that entity. A chain is asked when

* its entity and all its values are short plain names, and each value is the next fact's entity;
* the question does not contain the answer;
* with more than one hop, no passage of the corpus that names the entity contains the answer: the capital of the
  country of Mombasa is not asked, since "The time zone of Mombasa is Africa/Nairobi." would suffice;
* in a seeded order, it is among the first `QUESTIONS_PER_ANSWER` along the same relations that have this answer, so
  that knowing the frequent answers gains little.

Whether a chain is asked is decided when it is reached: a task set needs a few hundred of the tens of thousands.
"""

from __future__ import annotations

import functools
import threading
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from operator import itemgetter

from envs.search.corpus import corpus
from envs.search.facts import CITY_RELATIONS, COUNTRY_RELATIONS, DATA, PHRASES, READABLE, Fact, facts
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
        question = f"{_wording(self.relations, self.entity)}?"
        return " ".join([*(fact.sentence for fact in self.facts if self.stated), question])

    @property
    def split(self) -> Split:
        """The split of the question's entity."""
        return split_of(self.entity)


def _wording(relations: tuple[str, ...], entity: str) -> str:
    """The question along `relations`, without its mark; it ends with the entity."""
    if relations == ("country",):
        return f"In which country is {entity}"
    phrase = entity
    for relation in relations:
        phrase = f"the {PHRASES[relation]} of {phrase}"
    return f"What is {phrase}"


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
    """All questions with this number of hops, by split, in a seeded order. Found once per process."""
    with _building:
        return _questions(hops)


@functools.cache
def _questions(hops: int) -> Mapping[Split, tuple[Question, ...]]:
    return {split: tuple(_draw_questions(hops, split, tuple(PHRASES), READABLE)) for split in SPLITS}


def draw(hops: int, split: Split, relations: tuple[str, ...], longest_name: int) -> Iterator[Question]:
    """The questions of a split with this number of hops in a seeded order, each found when it is asked for.

    Only those whose last relation is one of `relations`, on entities of at most `longest_name` characters. What is left
    out changes neither the order of the others nor which of them are asked.
    """
    with _building:
        _ordered(hops, relations)
    return _draw_questions(hops, split, relations, longest_name)


def _draw_questions(hops: int, split: Split, relations: tuple[str, ...], longest_name: int) -> Iterator[Question]:
    for chains, chain in _ordered(hops, relations)[split]:
        if len(chain[0].entity) <= longest_name and chains.ask(chain):
            yield Question(chain)


class _Chains:
    """The chains along some relations whose entity and values are short plain names, and which of them are asked."""

    def __init__(self, relations: tuple[str, ...]) -> None:
        self.name = ":".join(relations)
        self._wording = normalise(_wording(relations, ""))
        all_facts = facts()
        chains = [all_facts.chain(entity, relations) for entity in all_facts.entities]
        self.all = [chain for chain in chains if chain is not None and all(fact.readable for fact in chain)]
        self._by_answer: dict[str, list[tuple[Fact, ...]]] = defaultdict(list)
        for chain in self.all:
            self._by_answer[chain[-1].value].append(chain)
        self._first: dict[str, set[str]] = {}  # of an answer with many chains: the entities of those that are asked

    def ask(self, chain: tuple[Fact, ...]) -> bool:
        """Whether a chain is asked."""
        answer = chain[-1].value
        if len(self._by_answer[answer]) <= QUESTIONS_PER_ANSWER:
            return self._is_askable(chain)
        if answer not in self._first:
            in_order = sorted(self._by_answer[answer], key=self._choice)
            self._first[answer] = {
                each[0].entity for each in islice(filter(self._is_askable, in_order), QUESTIONS_PER_ANSWER)
            }
        return chain[0].entity in self._first[answer]

    def _choice(self, chain: tuple[Fact, ...]) -> int:
        """The place of a chain in the seeded order in which those with the same answer are taken."""
        return seeding.derive(0, "search choice", f"{FAMILY}{chain[0].entity}:{self.name}")

    def _is_askable(self, chain: tuple[Fact, ...]) -> bool:
        """Whether neither the question nor, with several hops, a passage that names its entity contains the answer."""
        text = f"{self._wording} {normalise(chain[0].entity)}"  # the normal form of the question's text
        return not any(holds(text, alias) for alias in chain[-1].aliases) and not _has_a_shortcut(chain)


_chains_along = functools.cache(_Chains)


@functools.cache
def _ordered(hops: int, relations: tuple[str, ...]) -> Mapping[Split, list[tuple[_Chains, tuple[Fact, ...]]]]:
    """Every chain of readable names that ends in one of these relations, by split, in a seeded order."""
    chains_by_split: dict[Split, list[tuple[int, _Chains, tuple[Fact, ...]]]] = {split: [] for split in SPLITS}
    order = seeding.derivation(0, "search order")
    for chains in [_chains_along(each) for each in CHAINS[hops] if each[-1] in relations]:
        for chain in chains.all:
            entity = chain[0].entity
            chains_by_split[split_of(entity)].append((order(f"{FAMILY}{entity}:{chains.name}"), chains, chain))
    return {
        split: [(chains, chain) for _, chains, chain in sorted(entries, key=itemgetter(0))]
        for split, entries in chains_by_split.items()
    }


def _has_a_shortcut(chain: tuple[Fact, ...]) -> bool:
    """Whether a single passage leads from the entity to the answer of a question with several hops."""
    if len(chain) == 1:
        return False
    return any(holds(normal, alias) for normal in _naming(chain[0].entity) for alias in chain[-1].aliases)


@functools.cache
def _naming(entity: str) -> tuple[str, ...]:
    """The passages that name an entity, in normal form: they are the same for every chain that begins with it."""
    return tuple(corpus().mentioning(normalise(entity)))
