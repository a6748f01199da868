import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from corpus_samples import (
    RIVERS,
    SOURCES,
    answer_from,
    asked,
    documents,
    server,
    totals_of,
    write_corpus,
    write_nq_open,
    write_squad,
    write_trivia_qa,
)
from hypothesis import example, given
from hypothesis import strategies as st

from envs.search.corpus_episode import CorpusEnvironment, alias_in, is_present, oracle_queries
from envs.search.corpus_world import SearchCorpus
from envs.search.documents import DocumentIndex
from envs.search.question_files import OpenQuestion
from envs.search.retriever import Document
from turnwise.agent.formats import make_format
from turnwise.checking import check_world
from turnwise.world import SPLITS, Remaining, Task

KALOR = OpenQuestion("q", "Where does it rise?", ("Mount Oth", "Oth"), "Kalor")
SHELF = {
    "where does it rise": (Document("1", "Rise", "A rise is a hill."), Document("2", "", "It was on its way.")),
    "kalor": (Document("3", "Kalor", "The Kalor rises on Mount Oth and is long."),),
    "kalor where does it rise": (
        Document("1", "Rise", "A rise is a hill."),
        Document("3", "Kalor", "It is on Mount Oth."),
    ),
}


class Shelf:
    """A retriever that knows a few queries by heart."""

    def search(self, query: str, count: int) -> tuple[Document, ...]:
        return SHELF.get(query.casefold().rstrip("?"), ())[:count]


def begin(question: OpenQuestion = KALOR, words: int = 20) -> CorpusEnvironment:
    environment = CorpusEnvironment(question, Shelf(), 3, words, (KALOR, OpenQuestion("p", "Who is Ann?", ("a girl",))))
    environment.reset()
    return environment


def remaining(turns: int) -> Remaining:
    return Remaining(turns, 1, turns)


def on_disk(folder: Path, write: Callable[[Path], Path] = write_squad) -> dict[str, Any]:
    return {"questions": str(write(folder)), "corpus": str(write_corpus(folder))}


# The contract


@pytest.mark.parametrize("write", [write_squad, write_trivia_qa, write_nq_open])
def test_the_world_keeps_the_contract_on_every_form(tmp_path: Path, write: Callable[[Path], Path]) -> None:
    parameters = on_disk(tmp_path, write)
    report = check_world(SearchCorpus(**parameters), parameters=parameters, oracle_success=1.0, count=15, sample=1)
    assert report.passed, report.lines()


def test_the_world_keeps_the_contract_with_a_retriever(tmp_path: Path) -> None:
    index = DocumentIndex(write_corpus(tmp_path), tmp_path / "index")
    with server(answer_from(index)) as (url, heard):
        parameters = {"questions": str(write_squad(tmp_path)), "retriever": url}
        report = check_world(SearchCorpus(**parameters), parameters=parameters, oracle_success=1.0, count=10, sample=1)
        assert report.passed, report.lines()
        assert heard


def test_the_oracle_answers_all_and_chance_hardly_any(tmp_path: Path) -> None:
    world = SearchCorpus(**on_disk(tmp_path))
    tasks = world.tasks("train", 100)
    oracle = sum((totals_of(world, task, "oracle") for task in tasks), Counter())
    assert oracle["exact_match"] == oracle["f1"] == oracle["answer_in_results"] == oracle["searches"] == 100
    chance = sum((totals_of(world, task, "random") for task in tasks), Counter())
    assert chance["exact_match"] <= 3


def test_a_retriever_and_the_same_corpus_on_disk_give_the_same_episodes(tmp_path: Path) -> None:
    parameters = on_disk(tmp_path)
    local = SearchCorpus(**parameters)
    index = DocumentIndex(Path(parameters["corpus"]), tmp_path / "index")
    with server(answer_from(index)) as (url, _):
        remote = SearchCorpus(questions=parameters["questions"], retriever=url)
        for here, there in zip(local.tasks("test", 5), remote.tasks("test", 5), strict=True):
            one, other = local.make(here, 0), remote.make(there, 0)
            assert one.reset() == other.reset()
            for action in (f"search[{RIVERS[3]} rises]", "search[zzzqqq]", "answer[Mount]"):
                assert one.step(action) == other.step(action)


# Tasks


def test_tasks_name_the_question_and_the_content_of_both_files(tmp_path: Path) -> None:
    parameters = on_disk(tmp_path)
    world = SearchCorpus(**parameters)
    tasks = {split: world.tasks(split, 10) for split in SPLITS}
    assert all(tasks[split] == world.tasks(split, 12)[:10] for split in SPLITS)
    for split, found in tasks.items():
        for task in found:
            assert task.id.startswith("search_corpus/1/") and task.split == split
            number = int(task.id.rsplit("/q", 1)[1])
            assert world.make(task, 0).reset().text == asked(RIVERS[number])
    write_corpus(tmp_path, documents()[:-1])
    # Another corpus at the same place is read by another process.
    other = SearchCorpus(**{**parameters, "corpus": str((tmp_path / "corpus.jsonl").rename(tmp_path / "other.jsonl"))})
    assert not {task.id for task in tasks["train"]} & {task.id for task in other.tasks("train", 10)}
    with pytest.raises(ValueError, match="must be named like 'search_corpus/1/"):
        other.make(tasks["train"][0], 0)


def test_questions_that_the_corpus_cannot_answer_are_left_out(tmp_path: Path) -> None:
    questions = str(write_squad(tmp_path))
    corpus = str(write_corpus(tmp_path, documents()[:100]))
    world = SearchCorpus(questions=questions, corpus=corpus)
    kept = [int(task.id.rsplit("/q", 1)[1]) for split in SPLITS for task in every_task(world, split)]
    assert sorted(kept) == list(range(100))


def test_what_is_cut_off_does_not_answer(tmp_path: Path) -> None:
    # The source is stated from the fifth word on: "The Kalor rises on Mount ..."
    parameters = on_disk(tmp_path)
    assert len(every_task(SearchCorpus(**parameters, passage_words=6), "train")) > 100
    with pytest.raises(ValueError, match="count must be at most 0"):
        SearchCorpus(**parameters, passage_words=5).tasks("train", 1)


def every_task(world: SearchCorpus, split: Any) -> list[Task]:
    with pytest.raises(ValueError, match=r"count must be at most \d+") as refusal:
        world.tasks(split, 10_000)
    return world.tasks(split, int(str(refusal.value).split("at most ")[1].split()[0]))


def test_an_article_that_helps_to_find_its_passage_needs_a_turn_more(tmp_path: Path) -> None:
    # The questions do not name the river, but their article does, and five other passages have their words.
    asked_about_it = [
        {"id": f"q{number}", "question": f"Where {'does ' * number}it rise?", "answers": [{"text": "Mount Oth"}]}
        for number in range(40)
    ]
    article = {"title": "Kalor", "paragraphs": [{"qas": asked_about_it}]}
    questions = tmp_path / "questions.json"
    questions.write_text(json.dumps({"data": [article]}), encoding="utf-8")
    fillers = [
        {"id": f"f{n}", "title": "Rise", "text": "Where does it rise? It does rise where it does."} for n in range(5)
    ]
    corpus = write_corpus(
        tmp_path, [*fillers, {"id": "k", "title": "Kalor", "text": "The Kalor comes from Mount Oth."}]
    )
    found = {"questions": str(questions), "corpus": str(corpus)}
    with pytest.raises(ValueError, match="at most 0"):
        SearchCorpus(**found, turns=2).tasks("train", 1)
    world = SearchCorpus(**found, turns=3)
    totals = totals_of(world, world.tasks("train", 1)[0], "oracle")
    assert totals["exact_match"] == 1 and totals["searches"] == 2


# Episodes


def searched(number: int) -> dict[str, float]:
    """What every search is paid by, whatever it finds: it is the episode's `number`th."""
    return {"searched": 1.0, "search_count": float(number)}


def test_a_search_shows_titles_and_the_first_words() -> None:
    step = begin(words=5).step("search[Kalor]")
    assert step.observation.text == "1. Kalor: The Kalor rises on Mount"
    assert step.rewards == {**searched(1), "tool_execution": 1.0} and step.metrics == {"searches": 1.0}
    untitled = begin().step("search[Where does it rise?]")
    assert untitled.observation.text == "1. Rise: A rise is a hill.\n2. It was on its way."


def test_the_answer_in_the_results_is_rewarded_the_first_time() -> None:
    environment = begin()
    first, second, third = (
        environment.step(f"search[{query}]").rewards
        for query in ("where does it rise", "kalor", "kalor where does it rise")
    )
    assert first == {**searched(1), "tool_execution": 1.0}
    assert second == {**searched(2), "tool_execution": 1.0, "answer_in_results": 1.0}
    assert third == {**searched(3), "tool_execution": 1.0}


def test_a_repeated_search_is_counted_earns_nothing_and_changes_nothing() -> None:
    environment = begin()
    first = environment.step("search[kalor]")
    again = environment.step("search[KALOR]")
    assert again.rewards == searched(2) and not again.effective and again.observation == first.observation
    assert again.metrics == {"searches": 1.0, "repeated_search": 1.0}


def test_a_search_that_finds_nothing_and_an_empty_one_fail() -> None:
    for action, text in (("search[zzz]", "Nothing was found."), ("search[ ? ]", "The query is empty")):
        step = begin().step(action)
        assert step.observation.text.startswith(text) and step.valid and not step.effective
        assert step.rewards == searched(1) and step.metrics == {"searches": 1.0, "failed_search": 1.0}


@pytest.mark.parametrize(
    ("answer", "exact", "present", "f1"),
    [
        ("the mount oth.", 1.0, 1.0, 1.0),
        ("Oth", 1.0, 1.0, 1.0),
        ("It is on Mount Oth", 0.0, 1.0, 4 / 7),  # mount, oth of five words and two
        ("Mount Ida", 0.0, 0.0, 0.5),
        ("one two three four five six Mount Oth", 0.0, 0.0, 0.4),
        ("", 0.0, 0.0, 0.0),
    ],
)
def test_one_answer_ends_the_episode(answer: str, exact: float, present: float, f1: float) -> None:
    environment = begin()
    step = environment.step(f"answer[{answer}]")
    assert step.terminated and step.success == bool(exact)
    assert step.rewards == {"answered": 1.0, "exact_match": exact, "answer_present": present}
    assert step.metrics == {"f1": pytest.approx(f1)}
    again = environment.step("answer[Oth]")
    assert again.terminated and not again.valid and again.rewards == {} and again.success == bool(exact)


@pytest.mark.parametrize("action", ["", "Oth", "search", "search[Oth", "look[Oth]", "search(Oth)"])
def test_what_is_no_action_is_told_what_is_legal(action: str) -> None:
    step = begin().step(action)
    assert not step.valid and not step.effective and not step.terminated
    assert "search[QUERY]" in step.observation.text and "answer[TEXT]" in step.observation.text


@example("search[\ud800\x00]")
@example("answer[\ud800" + "x]" * 10_000)
@given(st.one_of(st.text(), st.text().map("search[{}]".format), st.text().map("answer[{}]".format)))
def test_any_text_is_answered(action: str) -> None:
    assert begin().step(action).observation.text


# The baseline policies


def test_the_oracle_searches_the_question_then_under_its_title_and_says_only_what_it_was_shown() -> None:
    environment = begin()
    decisions = []
    for left in (3, 2, 1):
        decisions.append(environment.oracle(remaining(left)))
        step = environment.step(decisions[-1].actions[0])
    assert [decision.actions[0] for decision in decisions] == [
        "search[Where does it rise?]",
        "search[Kalor Where does it rise?]",
        "answer[Mount Oth]",
    ]
    assert [decision.thought for decision in decisions] == ["search for it", "search for it", "passage 2 says it"]
    assert step.success


def test_the_oracle_does_not_know_what_it_was_not_shown() -> None:
    environment = begin()
    assert environment.oracle(remaining(1)).actions == ("answer[unknown]",)
    lost = begin(OpenQuestion("l", "Who is lost?", ("nobody here",), "Lost"))
    for _ in range(2):
        lost.step(lost.oracle(remaining(9)).actions[0])
    assert lost.oracle(remaining(9)).actions == ("answer[unknown]",)


def test_no_query_of_the_oracle_gives_the_answer_away() -> None:
    assert oracle_queries(OpenQuestion("q", "Who won?", ("Ann Lee",), "Life of Ann Lee")) == ["Who won?"]
    assert oracle_queries(OpenQuestion("q", "Who won?", ("Ann Lee",))) == ["Who won?"]
    assert oracle_queries(OpenQuestion("q", "Who won?", ("Ann Lee",), "Race")) == ["Who won?", "Race Who won?"]


def test_the_random_baseline_searches_half_the_time_and_answers_in_its_last_turn() -> None:
    environment = begin()
    said = Counter(environment.random(np.random.default_rng(seed), remaining(2)).actions[0] for seed in range(800))
    assert set(said) == {"search[Where does it rise?]", "search[Who is Ann?]", "answer[Mount Oth]", "answer[a girl]"}
    assert all(140 < count < 260 for count in said.values())  # 200 expected, deviation 12
    last = {environment.random(np.random.default_rng(seed), remaining(1)).actions[0][:7] for seed in range(50)}
    assert last == {"answer["}


def test_an_alias_stands_as_whole_words_and_the_first_one_is_taken() -> None:
    assert alias_in(["Rothschild was on mount oth."], ("Oth", "Mount Oth")) == "Oth"
    assert alias_in(["Rothschild"], ("Oth",)) is None
    assert is_present("in Oth, I think", ("Oth",)) and not is_present("Rothschild", ("Oth",))


def test_the_search_format_can_say_every_action(tmp_path: Path) -> None:
    world = SearchCorpus(**on_disk(tmp_path))
    form = make_format("search", world)
    form.require_expressible(world)
    environment = world.make(world.tasks("train", 1)[0], 0)
    environment.reset()
    decision = environment.oracle(remaining(3))
    assert form.read(form.write(decision), 1).actions == decision.actions


# Parameters


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({}, "questions must be the path of a file; found ''"),
        ({"questions": "/"}, "questions must be the path of a file; found '/'"),
        ({"questions": __file__}, "either corpus, a file, or retriever, an address, must be given, and not both"),
        ({"questions": __file__, "corpus": __file__, "retriever": "http://x"}, "either corpus"),
        ({"questions": __file__, "corpus": 3}, "corpus must be the path of a file; found 3"),
        ({"questions": __file__, "corpus": __file__, "cache": __file__}, "cache must be the path of a folder"),
        ({"questions": __file__, "corpus": __file__, "cache": ""}, "cache must be the path of a folder"),
        ({"questions": __file__, "corpus": __file__, "retriever_seconds": 3}, "retriever_seconds must not be given"),
        ({"questions": __file__, "retriever": "http://x", "cache": "y"}, "cache is the folder of a corpus' index"),
        ({"questions": __file__, "retriever": "127.0.0.1:8000"}, "retriever must be an address that begins with http"),
        (
            {"questions": __file__, "retriever": "http://x", "retriever_seconds": 0},
            "retriever_seconds must be a number",
        ),
        ({"questions": __file__, "corpus": __file__, "turns": 1}, "turns must be"),
        ({"questions": __file__, "corpus": __file__, "passages": 11}, "passages must be"),
        ({"questions": __file__, "corpus": __file__, "passage_words": 0}, "passage_words must be"),
    ],
)
def test_a_wrong_parameter_is_refused_by_name(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SearchCorpus(**parameters)


def test_a_file_may_be_missing_until_it_is_read(tmp_path: Path) -> None:
    parameters = on_disk(tmp_path)
    world = SearchCorpus(**{**parameters, "corpus": "/nowhere"})
    assert world.limits.turns == 3
    with pytest.raises(ValueError, match="corpus must be the path of a file; found nothing at /nowhere"):
        world.tasks("train", 1)
    with pytest.raises(ValueError, match="questions must be the path of a file; found nothing at /nowhere"):
        SearchCorpus(**{**parameters, "questions": "/nowhere"}).tasks("train", 1)


def test_the_index_lies_beside_the_corpus_or_where_it_is_wanted(tmp_path: Path) -> None:
    parameters = on_disk(tmp_path)
    SearchCorpus(**parameters).tasks("train", 1)
    assert len(list((tmp_path / "corpus.jsonl.index").iterdir())) == 1
    SearchCorpus(**parameters, cache=str(tmp_path / "deep" / "cache")).tasks("train", 1)
    assert len(list((tmp_path / "deep" / "cache").iterdir())) == 1


def test_sources_are_all_different() -> None:
    assert len(set(SOURCES)) == len(set(RIVERS)) == len(RIVERS)
