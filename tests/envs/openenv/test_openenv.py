"""The world `openenv`, on a server that speaks OpenEnv's protocol, and on messages that its package sends."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from corridor_server import SCHEMA, CorridorServer

from envs.openenv import OpenEnv
from envs.openenv.actions import action_form
from envs.openenv.episode import OpenEnvEpisode, Reading
from envs.openenv.sessions import OpenEnvFault, _fault, _read_reply
from tests.envs.agentgym.agentgym_servers import served
from turnwise.world import ContractError, Remaining

REMAINING = Remaining(20, 1, 20)
WALK: dict[str, Any] = {
    "success_reward": 1.0,
    "offers": "legal_actions",
    "solution": "rest",
    "observation": ["message"],
}
READING = Reading(None, 1.0, None, None, None)


@pytest.fixture(scope="module")
def server() -> CorridorServer:
    return CorridorServer(trap=True)


@pytest.fixture(scope="module")
def url(server: CorridorServer) -> Iterator[str]:
    with served(server.app) as address:
        yield address


@pytest.fixture
def episode(url: str) -> Iterator[OpenEnvEpisode]:
    world = OpenEnv(url=url, **WALK)
    made = world.make(world.tasks("train", 1)[0], 0)
    yield made
    made.close()


def test_a_world_needs_little_but_an_address(url: str) -> None:
    world = OpenEnv(url=f"{url}/", success_field="arrived")
    assert (world.instruction, world.grammar) == ("Walk to the last cell.", "A whole number: where to go.")
    assert (world.baselines, world.verbs) == ((), None)
    episode = world.make(world.tasks("test", 1)[0], 0)
    shown = [line.partition(": ")[0] for line in episode.reset().text.splitlines()]
    assert shown == ["message", "legal_actions", "rest", "arrived"]
    episode.close()
    assert OpenEnv(url=url, instruction="Go.", grammar="1 or -1.", **WALK).baselines == ("random", "oracle")


def test_an_episode_is_a_session_with_the_seed_of_its_task(server: CorridorServer, url: str) -> None:
    world = OpenEnv(url=url, reset={"level": "easy"}, **WALK)
    (task,) = world.tasks("train", 1)
    episode = world.make(task, 0)
    server.received.clear()
    cell = 1 + task.seed % 3
    assert episode.reset().text == f"cell {cell} of 4"
    while not (step := episode.step(*episode.oracle(REMAINING).actions)).terminated:
        assert (step.rewards, step.valid, step.effective, step.success) == ({"reward": -0.1}, True, True, False)
    assert (step.success, step.rewards, step.observation.text) == (True, {"reward": 1.0}, "cell 4 of 4")
    after = episode.step("1")
    assert (after.terminated, after.success, after.valid, after.rewards) == (True, True, False, {})
    episode.close()
    assert server.received == [
        {"type": "reset", "data": {"level": "easy", "seed": task.seed}},
        *[{"type": "step", "data": {"move": 1}}] * (4 - cell),
    ]


def test_what_a_policy_writes_wrongly_is_answered_and_never_raises(episode: OpenEnvEpisode) -> None:
    episode.reset()
    # No whole number; a number that the environment raises at, since it did not list it; nothing; something deep.
    for action in ("on", "7", "", '{"move": 1}', "[" * 5000, "1 1"):
        step = episode.step(action)
        assert (step.valid, step.effective, step.terminated, step.rewards) == (False, False, False, {})
        assert step.observation.text == "Not an action. A whole number: where to go."
    assert episode.step(" -1 ").valid


def test_what_the_environment_raises_at_a_listed_action_is_missing_data(episode: OpenEnvEpisode) -> None:
    episode.reset()
    while "cell 0" not in episode.step("-1").observation.text:
        pass
    with pytest.raises(OpenEnvFault, match="EXECUTION_ERROR: the corridor is gone"):
        episode.step("500")


def test_random_draws_of_the_listed_actions(episode: OpenEnvEpisode) -> None:
    episode.reset()
    draws = {episode.random(np.random.default_rng(seed), REMAINING).actions for seed in range(20)}
    assert draws == {("-1",), ("1",)}


def test_a_server_that_is_gone_or_full_is_missing_data() -> None:
    full = CorridorServer(most_sessions=1)
    with served(full.app) as url:
        world = OpenEnv(url=url, **WALK)
        first, second = (world.make(task, 0) for task in world.tasks("train", 2))
        first.reset()
        with pytest.raises(
            OpenEnvFault, match="CAPACITY_REACHED: Server at capacity: 1/1: start the server with a `max"
        ):
            second.reset()
        second.close()
    with pytest.raises(OpenEnvFault, match="must be answered"):
        first.step("1")
    first.close()
    with pytest.raises(OpenEnvFault, match="must open a session"):
        world.make(world.tasks("train", 1)[0], 0).reset()


def test_a_server_of_one_session_plays_one_episode_after_another() -> None:
    with served(CorridorServer(most_sessions=1).app) as url:
        world = OpenEnv(url=url, **WALK)
        for task in world.tasks("train", 8):
            episode = world.make(task, 0)
            assert episode.reset().text == f"cell {1 + task.seed % 3} of 4"
            episode.close()


def test_a_token_goes_to_the_server(server: CorridorServer, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENENV_TOKEN", "sesame")
    world = OpenEnv(url=url, **WALK)
    episode = world.make(world.tasks("train", 1)[0], 0)
    episode.reset()
    assert server.headers[-1]["authorization"] == "Bearer sesame"
    assert "origin" not in server.headers[-1]
    episode.close()


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"success_reward": None}, "success_reward or success_field must say when a task is solved"),
        ({"success_field": "arrived"}, "and not both; found 1.0 and 'arrived'"),
        ({"offers": "moves"}, "fields must be of the server's observations, message, legal_actions, rest, arrived"),
        ({"observation": "message"}, "observation must be a list of fields"),
        ({"action": "go"}, "action must be json, tools or one of the action's fields, move; found 'go'"),
        ({"url": "http://127.0.0.1:9"}, "url must be the address of a running OpenEnv server"),
        ({"url": "nowhere"}, "url must be such as"),
    ],
)
def test_a_wrong_parameter_is_refused_at_once(url: str, wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        OpenEnv(**{"url": url, **WALK, **wrong})


def test_what_the_server_says_of_itself_is_part_of_the_worlds_identity(url: str) -> None:
    other = CorridorServer()
    with served(other.app) as elsewhere:
        assert OpenEnv.state({"url": url, **WALK}) == OpenEnv.state({"url": elsewhere, **WALK})
    first, second = OpenEnv(url=url, **WALK), OpenEnv(url=url, reset={"level": "hard"}, **WALK)
    assert first.tasks("train", 1) != second.tasks("train", 1)
    with pytest.raises(ValueError, match="must have an id that begins so"):
        second.make(first.tasks("train", 1)[0], 0)


MOVES = {"MoveAction": {"enum": ["UP", "DOWN"], "type": "string"}}
GRID = {"$defs": MOVES, "properties": {"action": {"$ref": "#/$defs/MoveAction"}}, "required": ["action"]}
ECHO = {
    "properties": {
        "metadata": {"type": "object"},
        "type": {"const": "call_tool", "type": "string"},
        "tool_name": {"type": "string"},
        "arguments": {"type": "object"},
    },
    "required": ["tool_name"],
}
CHAT = {"properties": {"message": {"type": "string"}}, "required": ["message"]}


@pytest.mark.parametrize(
    ("schema", "asked", "text", "action"),
    [
        (GRID, None, "UP", {"action": "UP"}),
        (GRID, None, "up", None),
        (CHAT, None, "[5]", {"message": "[5]"}),
        (SCHEMA["action"], None, "-1", {"move": -1}),
        (SCHEMA["action"], "json", '{"move": 2}', {"move": 2}),
        (SCHEMA["action"], "json", "2", None),
        (ECHO, None, 'say[{"a": 1}]', {"type": "call_tool", "tool_name": "say", "arguments": {"a": 1}}),
        (ECHO, None, "say[]", {"type": "call_tool", "tool_name": "say", "arguments": {}}),
        (ECHO, None, "say[hello]", None),
        (ECHO, None, "say", None),
    ],
)
def test_a_text_becomes_an_action_by_the_servers_schema(schema: Any, asked: str | None, text: str, action: Any) -> None:
    assert action_form(schema, asked).action(text) == action


def test_a_schema_of_several_fields_leaves_it_to_the_user() -> None:
    schema = {"properties": {"text": {"type": "string"}, "place": {"type": "integer"}}, "required": ["text", "place"]}
    with pytest.raises(ValueError, match="json or one of the action's fields, text, place; it says nothing"):
        action_form(schema, None)
    assert action_form(schema, "json").grammar == "A JSON object with the fields text, place."
    assert action_form(GRID, None).grammar == "UP, DOWN."


# What openenv-core 0.3.0 sent for the environments echo_env and grid_world_env of its repository (1 May 2026).
SAID = {
    "tool_name": "echo_message",
    "result": {"content": [{"type": "text", "text": "hi", "annotations": None, "meta": None}], "data": "hi"},
    "error": None,
}
UNKNOWN = {
    "tool_name": "nope",
    "result": None,
    "error": {"error_type": "tool_not_found", "message": "Unknown tool: 'nope'"},
}
INVALID = {
    "message": "Invalid message",
    "code": "VALIDATION_ERROR",
    "errors": [{"type": "enum", "loc": ["action"], "msg": "Input should be 'UP' or 'DOWN'", "input": "x"}],
}


def test_replies_of_the_package_are_read() -> None:
    played = _read_reply({"observation": {"x": 0, "y": 0, "message": "Keep going..."}, "reward": -0.1, "done": False})
    assert (READING.text(played.observation), played.reward) == ("x: 0\ny: 0\nmessage: Keep going...", -0.1)
    assert _read_reply({"observation": {}, "reward": None, "done": True}).reward == 0.0
    assert READING.text({}) == "The environment says nothing."
    assert (READING.text(SAID), READING.text(UNKNOWN)) == ("hi", "Unknown tool: 'nope'")
    with pytest.raises(OpenEnvFault, match="a tool must answer"):
        READING.text({"tool_name": "slow", "error": {"error_type": "timeout", "message": "timed out"}})
    for wrong in ({"observation": []}, {"observation": {}, "done": 1}):
        with pytest.raises(OpenEnvFault, match="must"):
            _read_reply(wrong)
    with pytest.raises(ContractError, match="the reward of a server's reply must be a number; found 'high'"):
        _read_reply({"observation": {}, "reward": "high"})
    fault = _fault("step", INVALID)
    assert (fault.code, fault.fields) == ("VALIDATION_ERROR", {"action"})
    assert str(fault) == "step failed with VALIDATION_ERROR: action: Input should be 'UP' or 'DOWN'"
