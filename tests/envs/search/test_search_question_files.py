import json
from collections import Counter
from pathlib import Path

import pytest
from corpus_samples import RIVERS, SOURCES, asked, write_nq_open, write_squad, write_trivia_qa

from envs.search.question_files import OpenQuestion, QuestionFile
from turnwise.world import SPLITS


def read(folder: Path, content: object) -> QuestionFile:
    path = folder / "questions"
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return QuestionFile(path)


def test_squad_is_read_without_the_questions_that_have_no_answer(tmp_path: Path) -> None:
    found = QuestionFile(write_squad(tmp_path)).all
    assert len(found) == len(RIVERS)
    assert found[3] == OpenQuestion("q3", asked(RIVERS[3]), (SOURCES[3],), RIVERS[3])


def test_squads_answers_are_different_and_its_titles_have_spaces(tmp_path: Path) -> None:
    answers = [{"text": text} for text in ("Denver Broncos", "the Denver Broncos", " Denver \n", "?!")]
    article = {
        "title": "Super_Bowl_50",
        "paragraphs": [{"qas": [{"id": 7, "question": "Who  won?", "answers": answers}]}],
    }
    (found,) = read(tmp_path, {"data": [article]}).all
    assert found == OpenQuestion("7", "Who won?", ("Denver Broncos", "Denver"), "Super Bowl 50")


def test_trivia_qa_is_read_with_its_aliases_value_first(tmp_path: Path) -> None:
    found = QuestionFile(write_trivia_qa(tmp_path)).all
    assert found[5] == OpenQuestion("tc_5", asked(RIVERS[5]), (SOURCES[5], f"{SOURCES[5]} Massif"), RIVERS[5])


def test_trivia_qa_without_answers_or_pages_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    entries = [
        {"QuestionId": "a", "Question": "Who?"},
        {"QuestionId": "b", "Question": "What?", "Answer": {"Value": "It"}, "EntityPages": []},
    ]
    assert read(tmp_path, {"Data": entries}).all == (OpenQuestion("b", "What?", ("It",)),)


def test_nq_open_is_read_line_by_line_and_named_by_the_wording(tmp_path: Path) -> None:
    found = QuestionFile(write_nq_open(tmp_path)).all
    assert [question.text for question in found] == [asked(river) for river in RIVERS]
    assert found[0].answers == (SOURCES[0],) and len(found[0].id) == 16
    (alone,) = read(tmp_path, json.dumps({"question": asked(RIVERS[0]), "answer": ["x"]})).all
    assert alone.id == found[0].id


def test_a_wording_is_asked_once(tmp_path: Path) -> None:
    lines = [json.dumps({"question": text, "answer": ["x"]}) for text in ("Who is it?", "who is IT", "Who was it?")]
    assert [question.text for question in read(tmp_path, "\n".join(lines)).all] == ["Who is it?", "Who was it?"]


def test_splits_are_apart_and_in_an_order_of_their_own(tmp_path: Path) -> None:
    file = QuestionFile(write_squad(tmp_path))
    names = [question.id for split in SPLITS for question in file.by_split[split]]
    assert sorted(names) == sorted(file.by_id)
    sizes = Counter({split: len(file.by_split[split]) for split in SPLITS})
    # 7, 1 and 2 of ten of 192, within three standard errors.
    assert abs(sizes["train"] - 134) < 20 and abs(sizes["validation"] - 19) < 13 and abs(sizes["test"] - 38) < 17
    assert [question.id for question in file.by_split["train"]] != [
        question.id for question in file.all if question.split == "train"
    ]


def test_the_split_of_a_question_is_for_ever() -> None:
    # Promised: the digest of an id.
    assert [OpenQuestion(f"q{number}", "", ()).split for number in range(6)] == [
        "train",
        "train",
        "test",
        "train",
        "validation",
        "validation",
    ]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "questions must be in SQuAD's form"),
        ("[1, 2]", "questions must be in SQuAD's form"),
        ({"version": "1"}, "questions must be in SQuAD's form"),
        ({"data": []}, "at least one question with an answer"),
        ({"data": [{"title": "x", "paragraphs": []}, {"title": "x"}]}, r"item 1 of .* has not: KeyError: 'paragraphs'"),
        ({"Data": [{"QuestionId": "a"}]}, "item 0 of .* has not: KeyError: 'Question'"),
        ('{"question": "Who?", "answer": ["x"]}\n{"question": "Why?"}', "item 1 of .* has not: KeyError: 'answer'"),
        ('{"question": "Who?", "answer": "x"}', "answer must be a list of texts; found 'x'"),
        ('{"question": "Who?", "answer": ["x"]}\n{"question', "item 1 of .* has not: JSONDecodeError"),
        (
            {"Data": [{"QuestionId": "a", "Question": text, "Answer": {"Value": "x"}} for text in ("Who?", "Why?")]},
            "the ids of questions must be different",
        ),
    ],
)
def test_a_file_of_another_form_is_refused(tmp_path: Path, content: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read(tmp_path, content)
