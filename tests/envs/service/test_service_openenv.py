"""Our worlds by OpenEnv's protocol: the messages of its client play them, and so does our world `openenv`."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import httpx
import pytest
from fastapi.testclient import TestClient
from service_samples import BRITTLE, Clock, serving
from starlette.testclient import WebSocketDenialResponse, WebSocketTestSession
from starlette.websockets import WebSocketDisconnect
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from envs.openenv import OpenEnv
from envs.service.application import create_application
from envs.service.limits import ServiceLimits
from envs.service.offers import Offer
from turnwise.world import Remaining, make_world

REMAINING = Remaining(30, 1, 30)
LAKE = Offer("frozen_lake", {"success_rate": 0.5, "turns": 40})
PATH = "/openenv/frozen_lake/validation"
OWN = "ws://localhost"


@pytest.fixture(scope="module")
def http() -> Iterator[TestClient]:
    app = create_application([LAKE, Offer(BRITTLE)], clock=Clock(), limits=ServiceLimits(episodes=3))
    with TestClient(app, "http://localhost") as client:
        yield client


@pytest.fixture
def session(http: TestClient) -> Iterator[WebSocketTestSession]:
    with http.websocket_connect(f"{OWN}{PATH}/ws") as made:
        yield made


def told(session: WebSocketTestSession, kind: str, **data: Any) -> tuple[str, Any]:
    session.send_json({"type": kind, "data": data})
    reply = session.receive_json()
    return reply["type"], reply["data"]


def test_a_session_plays_the_episode_of_its_task_and_seed(session: WebSocketTestSession) -> None:
    world = make_world(LAKE.world, LAKE.parameters)
    for place, seed in ((2, 7), (0, 0), (2, 7)):  # a session is reset as often as its client likes
        (task,) = world.tasks("validation", place + 1)[place:]
        with closing(world.make(task, seed)) as home:
            kind, first = told(session, "reset", task=place, seed=seed, prompt="passed over")
            assert (kind, first["reward"], first["done"]) == ("observation", None, False)
            assert first["observation"]["text"] == home.reset().text
            for number in range(1, 41):
                (played,) = home.oracle(REMAINING).actions[:1]
                step = home.step(played)
                _, found = told(session, "step", text=played)
                assert (found["observation"]["text"], found["reward"]) == (
                    step.observation.text,
                    step.rewards.get("goal", 0.0),
                )
                assert (found["done"], found["observation"]["success"]) == (step.terminated, step.success)
                _, state = told(session, "state")
                assert (state["step_count"], state["task"], state["success"]) == (number, task.id, step.success)
                if step.terminated:
                    break


def test_an_illegal_action_is_an_observation_that_says_what_is_legal(session: WebSocketTestSession) -> None:
    told(session, "reset")
    kind, found = told(session, "step", text="fly", metadata={})
    assert (kind, found["observation"]["valid"], found["done"]) == ("observation", False, False)


def test_a_seed_draws_a_task_and_without_one_they_come_in_turn(http: TestClient) -> None:
    with http.websocket_connect(f"{OWN}/openenv/frozen_lake/train/ws") as session:

        def task(**data: Any) -> str:
            told(session, "reset", **data)
            return str(told(session, "state")[1]["task"])

        assert task(seed=3) == task(seed=3)
        assert len({task(seed=seed) for seed in range(8)}) > 4
        with http.websocket_connect(f"{OWN}/openenv/frozen_lake/train/ws") as other:
            told(other, "reset")
            in_turn = [str(told(other, "state")[1]["task"]), task(), task()]
        tasks = make_world(LAKE.world, LAKE.parameters).tasks("train", 3)
        assert in_turn == [each.id for each in tasks]
        told(session, "reset", episode_id="mine")
        assert told(session, "state")[1]["episode_id"] == "mine"


# What openenv-core 0.3.0 answers, but for the words of its messages and our `reason`.
@pytest.mark.parametrize(
    ("sent", "code"),
    [
        ("{", "INVALID_JSON"),
        ('{"type": "mcp", "data": {}}', "UNKNOWN_TYPE"),
        ('{"type": "reset", "data": {"seed": -1}}', "VALIDATION_ERROR"),
        ('{"type": "reset", "data": {"seed": "one"}}', "VALIDATION_ERROR"),
        ('{"type": "reset", "more": 1}', "VALIDATION_ERROR"),
        ('{"type": "step", "data": {}}', "VALIDATION_ERROR"),
        ('{"type": "step", "data": {"text": "Up", "loud": true}}', "VALIDATION_ERROR"),
        ('{"type": "step", "data": {"text": "Up"}}', "EXECUTION_ERROR"),
        ('{"type": "reset", "data": {"task": 1000000000}}', "EXECUTION_ERROR"),
        ("[]", "VALIDATION_ERROR"),
    ],
)
def test_what_is_wrong_is_told_in_openenvs_codes_and_ends_no_session(
    session: WebSocketTestSession, sent: str, code: str
) -> None:
    session.send_text(sent)
    reply = session.receive_json()
    assert (reply["type"], reply["data"]["code"]) == ("error", code)
    assert reply["data"]["message"] and reply["data"]["reason"]
    assert told(session, "reset")[0] == "observation"


def test_a_world_that_fails_is_an_error_and_no_reward(http: TestClient) -> None:
    with http.websocket_connect(f"{OWN}/openenv/brittle/test/ws") as session:
        assert told(session, "step", text="count")[1]["reason"] == "reset_out_of_order"
        told(session, "reset")
        assert told(session, "step", text="count")[1]["reward"] == 1.0
        for _ in range(2):
            kind, found = told(session, "step", text="raise")
            assert (kind, found["code"], found["reason"]) == ("error", "EXECUTION_ERROR", "world_failed")
        assert told(session, "reset")[0] == "observation"


def test_the_limit_on_episodes_holds_for_sessions_and_their_end_frees_them(http: TestClient) -> None:
    open_episodes = 'turnwise_service_episodes_open{world="brittle'
    sessions = [http.websocket_connect(f"{OWN}/openenv/brittle/test/ws") for _ in range(4)]
    for session in sessions:
        session.__enter__()
    assert [told(session, "reset")[0] for session in sessions] == ["observation"] * 3 + ["error"]
    assert told(sessions[3], "reset")[1]["code"] == "CAPACITY_REACHED"
    sessions[0].send_json({"type": "close"})
    with pytest.raises(WebSocketDisconnect):
        sessions[0].receive_json()
    assert told(sessions[3], "reset")[0] == "observation"
    for session in sessions:
        session.close()
        session.__exit__(None, None, None)
    (line,) = [each for each in http.get("/v2/metrics").text.splitlines() if each.startswith(open_episodes)]
    assert line.endswith(" 0.0")


def test_the_routes_say_what_the_world_is(http: TestClient) -> None:
    assert http.get(f"{PATH}/health").json() == {"status": "healthy"}
    world = make_world(LAKE.world, LAKE.parameters)
    about = http.get(f"{PATH}/metadata").json()
    assert about["description"] == f"{world.instruction}\n{world.grammar}"
    schema = http.get(f"{PATH}/schema").json()
    assert set(schema) == {"action", "observation", "state"}
    assert (schema["action"]["required"], schema["action"]["properties"]["text"]["type"]) == (["text"], "string")
    assert http.get("/openenv/none/test/health").json()["error"]["code"] == "unknown_world"


@pytest.mark.parametrize(
    ("path", "headers", "status", "code"),
    [
        ("/openenv/none/test/ws", {}, 404, "unknown_world"),
        ("/openenv/frozen_lake/all/ws", {}, 404, "unknown_route"),
        ("/v2/health", {}, 404, "unknown_route"),
        (f"{PATH}/ws", {"Host": "rebound.example"}, 421, "wrong_host"),
        (f"{PATH}/ws", {"Origin": "http://rebound.example"}, 403, "wrong_origin"),
        (f"{PATH}/ws", {"Origin": "null"}, 403, "wrong_origin"),
    ],
)
def test_a_handshake_is_refused_before_a_session_opens(
    http: TestClient, path: str, headers: dict[str, str], status: int, code: str
) -> None:
    with pytest.raises(WebSocketDenialResponse) as refused, http.websocket_connect(OWN + path, headers=headers):
        pass
    assert (refused.value.status_code, refused.value.json()["error"]["code"]) == (status, code)


def test_a_page_of_another_server_is_refused_over_http_too(http: TestClient) -> None:
    refused = http.post("/v2/episodes", content=b"{}", headers={"Origin": "http://rebound.example"})
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "wrong_origin")
    assert http.get("/v2/worlds", headers={"Origin": "http://localhost"}).status_code == 200


def test_a_session_on_a_real_server_needs_the_token_and_keeps_to_the_limits() -> None:
    limits = ServiceLimits(body_bytes=2000, lease_seconds=0.5)
    with serving(LAKE, token="sesame", limits=limits) as url:
        address = f"ws{url.removeprefix('http')}{PATH}/ws"
        for headers in ({}, {"Authorization": "Bearer open"}):
            with pytest.raises(InvalidStatus) as refused, connect(address, additional_headers=headers, proxy=None):
                pass
            assert refused.value.response.status_code == 401
            assert b"unauthorised" in refused.value.response.body
        # OpenEnv's client takes no header, so the token is the password of its address.
        with connect(address.replace("ws://", "ws://any:sesame@"), proxy=None) as session:
            session.send('{"type": "reset"}')
            assert json.loads(session.recv())["type"] == "observation"
            session.send(json.dumps({"type": "step", "data": {"text": "x" * 2000}}))
            with pytest.raises(ConnectionClosed) as closed:
                session.recv()
            assert closed.value.sent is not None and closed.value.rcvd is not None
            assert closed.value.rcvd.code == 1009  # too big
        basic = base64.b64encode(b"any:sesame").decode()
        with (
            connect(address, additional_headers={"Authorization": f"Basic {basic}"}, proxy=None) as idle,
            pytest.raises(ConnectionClosed, match="nothing was asked for too long"),
        ):
            idle.recv()
        # Requests are served as before.
        found = httpx.get(f"{url}/v2/metrics", headers={"Authorization": "Bearer sesame"}).text
        assert 'turnwise_service_episodes_created_total{world="frozen_lake' in found


def test_our_own_world_plays_them_over_a_network() -> None:
    with serving(LAKE) as url:
        world = OpenEnv(url=f"{url}/openenv/frozen_lake/test", success_reward=1.0, observation=["text"], turns=40)
        home = make_world(LAKE.world, LAKE.parameters)
        assert world.instruction == f"{home.instruction}\n{home.grammar}"
        episode = world.make(world.tasks("test", 1)[0], 0)
        first = episode.reset().text
        refused = episode.step("fly")
        assert (first.count("\n"), refused.rewards, refused.terminated) == (3, {"reward": 0.0}, False)
        assert home.grammar.partition(",")[0] in refused.observation.text
        episode.close()
