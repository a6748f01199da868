"""OpenEnv's own package beside ours: its servers played by our world."""

from __future__ import annotations

import json
from typing import Any

import pytest
from corridor_server import Corridor, CorridorServer

pytest.importorskip("openenv.core", reason="needs OpenEnv's package: pip install openenv-core==0.3.0")

from openenv.core.env_server.http_server import create_fastapi_app
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import Action, Observation, State
from pydantic import Field
from websockets.sync.client import connect

from envs.openenv import OpenEnv
from tests.envs.agentgym.agentgym_servers import served
from turnwise.world import Remaining

REMAINING = Remaining(20, 1, 20)


class Move(Action):
    move: int = Field(description="where to go")


class Seen(Observation):
    message: str = ""
    legal_actions: list[int] = Field(default_factory=list)
    rest: list[int] = Field(default_factory=list)
    arrived: bool = False


class CorridorEnvironment(Environment[Move, Seen, State]):
    """The stand-in's corridor as an environment of the package."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        super().__init__()
        self._corridor = Corridor()

    def reset(self, seed: int | None = None, episode_id: str | None = None, **_: Any) -> Seen:
        return self._seen(self._corridor.reset(seed or 0))

    def step(self, action: Move, timeout_s: float | None = None, **_: Any) -> Seen:
        return self._seen(self._corridor.step(action.move))

    @property
    def state(self) -> State:
        return State()

    def _seen(self, told: dict[str, Any]) -> Seen:
        return Seen(**told["observation"], reward=told["reward"], done=told["done"])


def theirs() -> Any:
    return create_fastapi_app(CorridorEnvironment, Move, Seen, max_concurrent_envs=4)


def test_our_world_plays_their_server() -> None:
    with served(theirs()) as url:
        world = OpenEnv(url=url, success_field="arrived", offers="legal_actions", solution="rest")
        assert world.grammar == "A whole number: where to go."
        for task in world.tasks("validation", 3):
            episode = world.make(task, 0)
            assert episode.reset().text.startswith(f"message: cell {1 + task.seed % 3} of 4\nlegal_actions: [")
            assert not episode.step("99").valid and not episode.step("on").valid
            while not (step := episode.step(*episode.oracle(REMAINING).actions)).terminated:
                assert step.valid
            assert (step.success, step.rewards) == (True, {"reward": 1.0})
            episode.close()


def test_the_stand_in_of_the_other_tests_sends_what_their_server_sends() -> None:
    asked = [
        {"type": "reset", "data": {"seed": 3}},
        {"type": "step", "data": {"move": 1}},
        {"type": "step", "data": {"move": 7}},
        {"type": "step", "data": {"move": "on"}},
        {"type": "step", "data": {"move": 1}},
        {"type": "step", "data": {"move": 1}},
    ]

    def conversation(app: Any) -> list[Any]:
        with served(app) as url, connect(f"ws{url.removeprefix('http')}/ws") as socket:
            replies = []
            for message in asked:
                socket.send(json.dumps(message))
                replies.append(json.loads(socket.recv()))
            return replies

    ours, real = conversation(CorridorServer().app), conversation(theirs())
    for reply in (ours[3], real[3]):  # pydantic's words are its own
        reply["data"]["errors"] = [each["loc"] for each in reply["data"]["errors"]]
    assert ours == real


def test_their_client_plays_our_service() -> None:
    from openenv.core.generic_client import GenericEnvClient

    from envs.service.application import create_application
    from envs.service.offers import read_offers
    from turnwise.world import make_world, with_preset

    parameters = with_preset("frozen_lake", "ragen-v2-no-slip", {})
    home = make_world("frozen_lake", parameters)
    app = create_application(read_offers(["frozen_lake@ragen-v2-no-slip"]), token="sesame")
    with served(app) as url:
        address = url.replace("http://", "http://any:sesame@")
        with GenericEnvClient(base_url=f"{address}/openenv/frozen_lake/test").sync() as client:
            for place in (1, 0):
                episode = home.make(home.tasks("test", 2)[place], 0)
                result = client.reset(task=place)
                assert result.observation["text"] == episode.reset().text
                while not result.done:
                    (action, *_) = episode.oracle(REMAINING).actions
                    result = client.step({"text": action})
                    assert result.observation["text"] == episode.step(action).observation.text
                assert (result.reward, result.observation["success"]) == (1.0, True)
                assert client.state()["success"] is True
            with pytest.raises(RuntimeError, match="Invalid message"):
                client.step({"message": "Up"})
