"""Questions from disk, in their published formats: SQuAD, TriviaQA and NQ-open.

    SQuAD 1.1, 2.0    {"data": [{"title", "paragraphs": [{"qas": [{"id", "question", "answers": [{"text"}]}]}]}]}
    TriviaQA          {"Data": [{"QuestionId", "Question", "Answer": {"Value", "Aliases", "NormalizedAliases"},
                                 "EntityPages": [{"Title"}]}]}
    NQ-open           one line per question: {"question", "answer": ["...", ...]}

The format is recognised by the content. Questions without an answer (SQuAD 2.0 has some) are left out, and so are those
worded like an earlier one, so that no wording is in two splits.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from envs.search.squad import squad_normal
from turnwise import seeding
from turnwise.world import SPLITS, Split


@dataclass(frozen=True)
class OpenQuestion:
    """One question, and every text that counts as its answer; the first is the one that a baseline policy gives."""

    id: str
    text: str
    answers: tuple[str, ...]
    title: str = ""
    """Title of the article that the question was asked about; empty if unknown."""

    @property
    def split(self) -> Split:
        """The split of the question, by a digest of its id, in the shares 7 train, 1 validation, 2 test."""
        draw = seeding.derive(0, "search_corpus split", self.id) % 10
        return "train" if draw < 7 else "validation" if draw == 7 else "test"


class QuestionFile:
    """The questions of a file: by id, and by split in a seeded order. `digest` identifies the file's content."""

    def __init__(self, path: Path) -> None:
        content = path.read_bytes()
        self.digest = hashlib.sha256(content).hexdigest()[:12]
        self.all = tuple(_read_questions(path, content))
        self.by_id: Mapping[str, OpenQuestion] = {question.id: question for question in self.all}
        if len(self.by_id) < len(self.all):
            raise ValueError(
                f"the ids of questions must be different; {path} has {len(self.all) - len(self.by_id)} twice"
            )
        ordered = sorted(self.all, key=lambda question: seeding.derive(0, "search_corpus order", question.id))
        self.by_split: Mapping[Split, tuple[OpenQuestion, ...]] = {
            split: tuple(question for question in ordered if question.split == split) for split in SPLITS
        }


@functools.cache
def question_file(path: Path) -> QuestionFile:
    """The questions of a file, read once per process."""
    return QuestionFile(path)


def _read_questions(path: Path, content: bytes) -> Iterator[OpenQuestion]:
    """Every question that has an answer, each wording once. Raises ValueError if there is none."""
    seen: set[str] = set()
    for question in _read(path, content):
        wording = squad_normal(question.text)
        if question.answers and wording and wording not in seen:
            seen.add(wording)
            yield question
    if not seen:
        raise ValueError(f"questions must hold at least one question with an answer; {path} holds none")


def _read(path: Path, content: bytes) -> Iterator[OpenQuestion]:
    """The questions of a file in any of the formats. Raises ValueError for another format."""
    form, items = _form(path, content)
    for number, item in enumerate(items):
        try:
            questions = list(form(item))
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise ValueError(
                f"every item of a file of questions must have the fields of its form; item {number} of {path} has not: "
                f"{type(error).__name__}: {error}"
            ) from error
        yield from questions


def _form(path: Path, content: bytes) -> tuple[Callable[[Any], Iterator[OpenQuestion]], list[Any]]:
    """The parser of an item, and the items: articles, questions or lines. Raises ValueError for another format."""
    try:
        whole = json.loads(content)
    except ValueError:
        whole = None
    if isinstance(whole, dict) and isinstance(whole.get("data"), list):
        return _squad_questions, whole["data"]
    if isinstance(whole, dict) and isinstance(whole.get("Data"), list):
        return _trivia_qa_questions, whole["Data"]
    lines = [line for line in content.splitlines() if line.strip()]
    if lines and b'"question"' in lines[0]:
        return _nq_open_questions, lines
    raise ValueError(
        f"questions must be in SQuAD's form (an object with data), TriviaQA's (an object with Data) or NQ-open's "
        f"(lines with question and answer); {path} is in none of them"
    )


def _squad_questions(article: Mapping[str, Any]) -> Iterator[OpenQuestion]:
    title = article["title"].replace("_", " ")
    for paragraph in article["paragraphs"]:
        for entry in paragraph["qas"]:
            answers = tuple(answer["text"] for answer in entry["answers"])
            yield _question(str(entry["id"]), entry["question"], answers, title)


def _trivia_qa_questions(entry: Mapping[str, Any]) -> Iterator[OpenQuestion]:
    answer = entry.get("Answer") or {"Value": ""}  # the published test sets have none
    answers = (answer["Value"], *answer.get("Aliases", ()), *answer.get("NormalizedAliases", ()))
    pages = entry.get("EntityPages") or [{"Title": ""}]
    yield _question(str(entry["QuestionId"]), entry["Question"], answers, pages[0]["Title"])


def _nq_open_questions(line: bytes) -> Iterator[OpenQuestion]:
    entry = json.loads(line)
    answers = entry["answer"]
    if not isinstance(answers, list):
        raise ValueError(f"answer must be a list of texts; found {answers!r}")
    # NQ-open has no ids, so a digest of the wording serves as one.
    name = hashlib.sha256(entry["question"].encode()).hexdigest()[:16]
    yield _question(name, entry["question"], tuple(answers), "")


def _question(name: str, text: str, answers: tuple[str, ...], title: str) -> OpenQuestion:
    """The question with single spaces, and without answers that are empty in normal form or repeat an earlier one."""
    different: dict[str, str] = {}
    for answer in answers:
        different.setdefault(squad_normal(answer), " ".join(answer.split()))
    distinct_answers = tuple(answer for normal, answer in different.items() if normal)
    return OpenQuestion(name, " ".join(text.split()), distinct_answers, " ".join(title.split()))
