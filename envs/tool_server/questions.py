"""Questions from a file of JSON lines, and when an answer is right.

    {"question": "How much is 17 + 25?", "answer": ["42"], "split": "train", "solution": ["add[...]"]}

`answer` lists every text that counts. `split` may be left out: a digest of the question then says it, 7 of 10 for
training, 1 for validation, 2 for tests. `solution` lists calls that lead to the answer, for the oracle; without it in
every line there is no oracle.
"""

from __future__ import annotations

import re
import string
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from turnwise import seeding
from turnwise.world import SPLITS, Split

ARTICLES = re.compile(r"\b(a|an|the)\b")


class ToolQuestion(BaseModel):
    """One question."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    question: Annotated[str, Field(min_length=1)]
    answer: Annotated[list[Annotated[str, Field(min_length=1)]], Field(min_length=1)]
    split: Split | None = None
    solution: list[str] | None = None

    @property
    def name(self) -> str:
        """A digest of the wording, which names the task for ever."""
        return f"{seeding.derive(0, 'mcp question', self.question):x}"

    def is_answered(self, text: str) -> bool:
        """Whether a text equals an answer but for case, punctuation, articles and spaces."""
        return _normal(text) in {_normal(answer) for answer in self.answer}


def read_questions(path: Path) -> dict[Split, list[ToolQuestion]]:
    """The questions of a file, by split, in its order. Raises ValueError for an unreadable line and for repetitions."""
    questions: dict[Split, list[ToolQuestion]] = {split: [] for split in SPLITS}
    names: set[str] = set()
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except OSError as error:
        raise ValueError(f"questions must be a file of JSON lines; found {str(path)!r}: {error.strerror}") from error
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            question = ToolQuestion.model_validate_json(line)
        except ValidationError as error:
            raise ValueError(f"line {number} of {path} must be a question with its answers; {error}") from error
        if question.name in names:
            raise ValueError(f"every question must be asked once; line {number} of {path} repeats one")
        names.add(question.name)
        questions[question.split or _draw_split(question)].append(question)
    if not names:
        raise ValueError(f"questions must hold at least one question; {path} holds none")
    return questions


def _draw_split(question: ToolQuestion) -> Split:
    draw = seeding.derive(0, "mcp split", question.question) % 10
    return "train" if draw < 7 else "validation" if draw == 7 else "test"


def _normal(text: str) -> str:
    plain = "".join(letter for letter in text.lower() if letter not in string.punctuation)
    # An answer that is nothing but an article, such as the letter A, keeps it.
    return " ".join(ARTICLES.sub(" ", plain).split()) or " ".join(plain.split())
