"""What is made of TriviaQA's published files is what the world `search_corpus` reads."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from corpus_samples import RIVERS, SOURCES, asked

from envs.search.corpus_world import SearchCorpus
from envs.search.trivia_qa import prepare
from turnwise.world import SPLITS, Remaining

LONG = 230
"""Words of each page before the sentence that states the answer."""


def question(number: int, pages: tuple[str, ...]) -> dict[str, Any]:
    source = SOURCES[number]
    return {
        "QuestionId": f"tc_{number}",
        "Question": asked(RIVERS[number]),
        "QuestionSource": "http://www.triviacountry.com/",
        "Answer": {
            "Value": source,
            "Aliases": [source],
            "NormalizedAliases": [source.lower()],
            "Type": "WikipediaEntity",
        },
        "EntityPages": [{"DocSource": "TagMe", "Filename": f"{page}.txt", "Title": page} for page in pages],
        "SearchResults": [],
    }


@pytest.fixture
def unpacked(tmp_path: Path) -> Path:
    """A folder as TriviaQA's archive makes it: thirty rivers, the last of which has no page, in two files."""
    source = tmp_path / "triviaqa-rc"
    pages = source / "evidence" / "wikipedia"
    pages.mkdir(parents=True)
    for river, rises in zip(RIVERS[:29], SOURCES[:29], strict=True):
        filler = " ".join(f"word{place}" for place in range(LONG))
        (pages / f"{river}.txt").write_text(f"{filler}\nThe {river} rises on {rises} .")
    (source / "qa").mkdir()
    for name, numbers in (("train", range(20)), ("dev", range(20, 30))):
        data = [question(number, (RIVERS[number],)) for number in numbers]
        (source / "qa" / f"wikipedia-{name}.json").write_text(json.dumps({"Data": data, "Domain": "Wikipedia"}))
    return source


def test_the_world_plays_on_what_is_made(unpacked: Path, tmp_path: Path) -> None:
    target = tmp_path / "made"
    assert prepare(unpacked, target) == (29, 29 * 3)  # 230 words and the sentence: 100, 100 and the rest
    world = SearchCorpus(
        questions=str(target / "questions.json"), corpus=str(target / "corpus.jsonl"), passages=1, passage_words=100
    )
    tasks = [task for split in SPLITS for task in world.tasks(split, 2)]
    for task in tasks:
        environment = world.make(task, 0)
        environment.reset()
        for turns in (2, 1):
            step = environment.step(environment.oracle(Remaining(turns, 1, turns)).actions[0])
        assert step.success


def test_a_passage_has_a_hundred_words_and_names_its_page(unpacked: Path, tmp_path: Path) -> None:
    prepare(unpacked, tmp_path / "made")
    lines = [json.loads(line) for line in (tmp_path / "made" / "corpus.jsonl").read_text().splitlines()]
    assert [line["id"] for line in lines] == [
        f"{river}.txt#{part}" for river in sorted(RIVERS[:29]) for part in range(3)
    ]
    assert [len(line["text"].split()) for line in lines[:2]] == [100, 100]
    assert " ".join(line["text"] for line in lines[:3]).endswith(
        f"The {lines[0]['title']} rises on " + _rises(lines[0])
    )


def _rises(line: dict[str, str]) -> str:
    return f"{SOURCES[RIVERS.index(line['title'])]} ."


def test_the_command_writes_the_same_bytes_again(unpacked: Path, tmp_path: Path) -> None:
    prepare(unpacked, tmp_path / "first")
    command = [sys.executable, "-m", "envs.search.trivia_qa", str(unpacked), str(tmp_path / "second")]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert said == f"29 questions, 87 passages in {tmp_path / 'second'}\n"
    for name in ("questions.json", "corpus.jsonl"):
        assert (tmp_path / "first" / name).read_bytes() == (tmp_path / "second" / name).read_bytes()


def test_a_folder_without_questions_or_pages_is_refused_and_writes_nothing(unpacked: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"must hold qa/wikipedia-train\.json or qa/wikipedia-dev\.json"):
        prepare(tmp_path / "nowhere", tmp_path / "made")
    (unpacked / "evidence").rename(unpacked / "elsewhere")
    with pytest.raises(ValueError, match="must hold the pages of its questions"):
        prepare(unpacked, tmp_path / "made")
    assert not (tmp_path / "made").exists()
