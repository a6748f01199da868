"""The world `mcp`, on a real server over its standard streams."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp", reason="needs the library of the Model Context Protocol: pip install 'turnwise[mcp]'")

from envs.tool_server import ToolServer
from envs.tool_server.episode import ToolEpisode
from envs.tool_server.questions import read_questions
from envs.tool_server.sessions import ToolServerFault
from turnwise.world import SPLITS, Remaining

SERVER = str(Path(__file__).with_name("arithmetic_server.py"))
COMMAND = [sys.executable, SERVER]
REMAINING = Remaining(6, 1, 6)
SUM = 'add[{"a": 17, "b": 25}]'
QUESTIONS: list[dict[str, Any]] = [
    {"question": "How much is 17 + 25?", "answer": ["42", "forty-two"], "split": "train", "solution": [SUM]},
    {"question": "How much is 1 + 1?", "answer": ["2"], "split": "test", "solution": ['add[{"a": 1, "b": 1}]']},
]


def file_of(folder: Path, *questions: dict[str, Any]) -> str:
    path = folder / "questions.jsonl"
    path.write_text("".join(json.dumps(question) + "\n" for question in questions))
    return str(path)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> ToolServer:
    return ToolServer(questions=file_of(tmp_path_factory.mktemp("questions"), *QUESTIONS), command=COMMAND)


@pytest.fixture
def episode(world: ToolServer) -> Iterator[ToolEpisode]:
    made = world.make(world.tasks("train", 1)[0], 0)
    yield made
    made.close()


def test_the_prompt_says_which_tools_there_are(world: ToolServer) -> None:
    assert "add: a (integer), b (integer). The sum of two whole numbers." in world.instruction.splitlines()
    assert "crash: no arguments. End the server." in world.instruction.splitlines()
    assert world.verbs == {"add", "note", "divide", "crash", "answer"}
    assert (world.baselines, world.split_size("train"), world.split_size("validation")) == (("oracle",), 1, 0)


def test_the_oracle_calls_a_tool_and_answers(world: ToolServer, episode: ToolEpisode) -> None:
    assert episode.reset().text == "How much is 17 + 25?"
    (call,) = episode.oracle(REMAINING).actions
    step = episode.step(call)
    assert (step.observation.text, step.valid, step.metrics) == ("42", True, {"calls": 1.0, "failed_calls": 0.0})
    last = episode.step(*episode.oracle(REMAINING).actions)
    assert (last.terminated, last.success, last.rewards) == (True, True, {"correct": 1.0})
    after = episode.step(SUM)
    assert (after.valid, after.terminated, after.success, after.rewards) == (False, True, True, {})


def test_what_a_policy_writes_wrongly_is_answered_and_never_raises(episode: ToolEpisode) -> None:
    episode.reset()
    for action, said in (
        ("42", "Not an action. Write one of add, note, divide, crash, answer and its argument"),
        ("multiply[{}]", "Not an action."),
        ("add[1, 2]", "The arguments of add must be a JSON object with a, b."),
        ("add[" + "[" * 5000 + "]", "The arguments of add must be a JSON object"),
        (r'add[{"a": "\ud83d", "b": 1}]', "The arguments of add must be a JSON object"),
        ('add[{"a": 1}]', "add does not take these arguments: 'b' is a required property."),
        ('add[{"a": "x", "b": 1}]', "add does not take these arguments: 'x' is not of type 'integer'."),
    ):
        step = episode.step(action)
        assert (step.valid, step.effective, step.terminated) == (False, False, False)
        assert step.observation.text.startswith(said)
    assert episode.step(r'note[{"text": "\ud83d"}]').observation.text == r'{"text": "\ud83d"}', "text, not JSON"
    # What the tool itself refuses is a reply of it, and counted.
    failed = episode.step('divide[{"a": 1, "b": 0}]')
    assert (failed.valid, failed.metrics["failed_calls"]) == (False, 1.0)
    wrong = episode.step("answer[41]")
    assert (wrong.terminated, wrong.success, wrong.rewards) == (True, False, {"correct": 0.0})


def test_every_episode_has_a_server_of_its_own(world: ToolServer) -> None:
    first, second = (world.make(world.tasks("train", 1)[0], 0) for _ in range(2))
    for episode in (first, second):
        episode.reset()
    assert first.step("note[milk]").observation.text == "milk"
    assert first.step("note[eggs]").observation.text == "milk; eggs"
    assert second.step('note[{"text": "rye"}]').observation.text == "rye"
    first.close()
    second.close()


def test_a_server_that_dies_is_missing_data(episode: ToolEpisode) -> None:
    episode.reset()
    for action in ("crash[]", SUM):
        with pytest.raises(ToolServerFault, match="the MCP server must answer"):
            episode.step(action)


def test_an_answer_counts_without_case_punctuation_and_articles(world: ToolServer) -> None:
    for text in (" The Forty-two. ", "42"):
        episode = world.make(world.tasks("train", 1)[0], 0)
        assert episode.step(f"answer[{text}]").success  # an answer needs no server


def test_what_the_world_reads_is_part_of_its_identity(world: ToolServer, tmp_path: Path) -> None:
    parameters = {"questions": file_of(tmp_path, *QUESTIONS), "command": COMMAND}
    assert ToolServer.files(parameters) == {"questions": tmp_path / "questions.jsonl"}
    assert ToolServer.state(parameters) == ToolServer.state(parameters)
    assert ToolServer.state({**parameters, "tools": ["add"]}) != ToolServer.state(parameters)
    again = ToolServer(**parameters)
    assert again.tasks("test", 1) == world.tasks("test", 1)
    with pytest.raises(ValueError, match="count must be at most 1, the test questions of the file; found 2"):
        world.tasks("test", 2)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"command": None}, "command or url must say where the server is, and not both"),
        ({"url": "http://127.0.0.1:1/mcp"}, "and not both"),
        ({"command": "python server.py"}, "command must be a list of words"),
        ({"command": ["/nowhere/server"]}, "command or url must lead to an MCP server; .*No such file"),
        ({"tools": ["subtract"]}, "tools must be of the server's, add, note, divide, crash; found 'subtract'"),
        ({"questions": "/nowhere"}, "questions must be a file of JSON lines"),
    ],
)
def test_settings_that_do_not_fit_are_refused(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    parameters = {"questions": file_of(tmp_path, *QUESTIONS), "command": COMMAND, **changes}
    with pytest.raises(ValueError, match=said):
        ToolServer(**parameters)


def test_questions_are_read_strictly(tmp_path: Path) -> None:
    for questions, said in (
        ([{"question": "Why?"}], "line 1 of .* must be a question with its answers"),
        ([QUESTIONS[0], QUESTIONS[0]], "line 2 of .* repeats one"),
        ([], "at least one question"),
    ):
        with pytest.raises(ValueError, match=said):
            ToolServer(questions=file_of(tmp_path, *questions), command=COMMAND)


def test_without_solutions_there_is_no_oracle(tmp_path: Path) -> None:
    questions = file_of(tmp_path, {"question": "How much is 1 + 2?", "answer": ["3"]})
    assert ToolServer(questions=questions, command=COMMAND).baselines == ()


def test_the_documented_server_answers_the_documented_questions(tmp_path: Path) -> None:
    page = (Path(__file__).parents[3] / "docs" / "neighbours.md").read_text()
    section = page.partition("## Tools of an MCP server")[2]
    questions, server = (
        re.search(rf"```{fence}\n(.*?)```", section, re.DOTALL) for fence in ("json", 'python title="my_server.py"')
    )
    assert questions and server
    (tmp_path / "questions.jsonl").write_text(questions[1])
    (tmp_path / "my_server.py").write_text(server[1])
    world = ToolServer(
        questions=str(tmp_path / "questions.jsonl"), command=[sys.executable, str(tmp_path / "my_server.py")]
    )
    assert [world.split_size(split) for split in SPLITS] == [1, 1, 1]
    for split in SPLITS:
        episode = world.make(world.tasks(split, 1)[0], 0)
        episode.reset()
        episode.step(*episode.oracle(REMAINING).actions)
        assert episode.step(*episode.oracle(REMAINING).actions).success
        episode.close()


def test_an_answer_that_is_an_article_is_not_given_by_silence(tmp_path: Path) -> None:
    choice = {"question": "Which, A or B?\u2028Say a letter.", "answer": ["A"], "split": "test"}
    path = tmp_path / "questions.jsonl"
    path.write_text(json.dumps(choice, ensure_ascii=False) + "\n", encoding="utf-8")
    (question,) = read_questions(path)["test"]
    assert [question.is_answered(text) for text in ("a", "A.", "", "the", "B")] == [True, True, False, False, False]
