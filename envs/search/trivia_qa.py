"""Questions and a corpus for `search_corpus`, from the files that TriviaQA publishes (Joshi et al. 2017).

    python -m envs.search.trivia_qa SOURCE data/triviaqa

SOURCE is the folder into which its archive `triviaqa-rc.tar.gz` was unpacked:

    SOURCE/qa/wikipedia-train.json, wikipedia-dev.json    questions, their answers, and the names of their pages
    SOURCE/evidence/wikipedia/*.txt                       the text of each page of Wikipedia that a question names

Written are `questions.json`, TriviaQA's own form with the questions of both files that have a page here, and
`corpus.jsonl`, the pages in passages of a hundred words, as DPR and Search-R1 cut Wikipedia. The world draws its splits
from the questions by their ids, so the files' own split is not kept: train on one file alone to keep the other unseen.
The same source gives the same bytes.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

QUESTIONS, CORPUS = "questions.json", "corpus.jsonl"
QUESTION_FILES = ("qa/wikipedia-train.json", "qa/wikipedia-dev.json")
PAGES = "evidence/wikipedia"
PASSAGE_WORDS = 100


def prepare(source: Path, target: Path) -> tuple[int, int]:
    """Write both files into the folder `target`; returns the numbers of questions and of passages.

    Raises ValueError where the source has no questions, or no page of any of them.
    """
    paths = [source / name for name in QUESTION_FILES if (source / name).is_file()]
    if not paths:
        raise ValueError(
            f"the folder must hold {' or '.join(QUESTION_FILES)}, as triviaqa-rc.tar.gz unpacks them; found neither "
            f"in {source}"
        )
    questions = [question for path in paths for question in _questions(path, source / PAGES)]
    pages = {page["Filename"]: page["Title"] for question in questions for page in question["EntityPages"]}
    if not pages:
        raise ValueError(f"the folder must hold the pages of its questions; found none in {source / PAGES}")
    target.mkdir(parents=True, exist_ok=True)
    passages = _write_lines(target / CORPUS, _passages(source / PAGES, pages))
    _write_lines(target / QUESTIONS, iter([json.dumps({"Data": questions}, ensure_ascii=False)]))
    return len(questions), passages


def _questions(path: Path, pages: Path) -> Iterator[dict[str, Any]]:
    """The questions of a file that have an answer and a page in the folder, with the fields that are read of them."""
    for question in json.loads(path.read_bytes())["Data"]:
        present = [page for page in question.get("EntityPages", ()) if (pages / page["Filename"]).is_file()]
        if question.get("Answer") and present:
            yield {**{name: question[name] for name in ("QuestionId", "Question", "Answer")}, "EntityPages": present}


def _passages(folder: Path, pages: dict[str, str]) -> Iterator[str]:
    """The lines of the corpus: the passages of every page, in the order of the files' names."""
    for name in sorted(pages):
        words = (folder / name).read_text(encoding="utf-8", errors="replace").split()
        for number, first in enumerate(range(0, len(words), PASSAGE_WORDS)):
            text = " ".join(words[first : first + PASSAGE_WORDS])
            yield json.dumps({"id": f"{name}#{number}", "title": pages[name], "text": text}, ensure_ascii=False)


def _write_lines(path: Path, lines: Iterator[str]) -> int:
    """Write a file of which a reader sees all or nothing; returns the number of lines."""
    draft, count = path.with_name(f".{path.name}.draft"), 0
    with draft.open("w", encoding="utf-8", newline="\n") as file:
        for line in lines:
            file.write(f"{line}\n")
            count += 1
        file.flush()
        os.fsync(file.fileno())
    draft.rename(path)
    return count


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Make questions and a corpus for search_corpus from TriviaQA's files.")
    parser.add_argument("source", type=Path, help="the folder into which triviaqa-rc.tar.gz was unpacked")
    parser.add_argument("target", type=Path, help="where the two files are written, e.g. data/triviaqa")
    arguments = parser.parse_args()
    try:
        counts = prepare(arguments.source, arguments.target)
    except ValueError as error:
        parser.error(str(error))
    print(f"{counts[0]:,} questions, {counts[1]:,} passages in {arguments.target}")
