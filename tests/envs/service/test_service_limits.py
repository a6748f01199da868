"""What one client may have and ask, whatever the protocol, and that others do not feel it."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from fastapi.testclient import TestClient
from service_samples import BRITTLE, Clock, serving
from websockets.sync.client import connect

from envs.service import RemoteWorld
from envs.service.application import create_application
from envs.service.limits import MOST_CLIENTS, RequestRates, ServiceLimits
from envs.service.offers import Offer

OWN = "http://localhost"


def test_a_bucket_holds_a_seconds_requests_and_is_refilled_at_the_rate() -> None:
    clock = Clock()
    rates = RequestRates(2.0, clock)
    assert [rates.seconds_until_allowed("a") for _ in range(3)] == [0.0, 0.0, 0.5]
    assert rates.seconds_until_allowed("b") == 0.0
    clock.now += 0.25
    assert rates.seconds_until_allowed("a") == 0.25
    clock.now += 0.25
    assert [rates.seconds_until_allowed("a") for _ in range(2)] == [0.0, 0.5]
    clock.now += 3600
    assert [rates.seconds_until_allowed("a") for _ in range(3)] == [0.0, 0.0, 0.5]


def test_a_rate_below_one_lets_one_request_pass_and_debts_add_up() -> None:
    clock = Clock()
    rates = RequestRates(0.5, clock)
    assert [rates.seconds_until_allowed("a", owe=True) for _ in range(3)] == [0.0, 2.0, 4.0]
    clock.now += 4
    assert rates.seconds_until_allowed("a") == 2.0


def test_no_more_clients_are_remembered_than_a_number() -> None:
    rates = RequestRates(1.0, Clock())
    for number in range(MOST_CLIENTS + 5):
        rates.seconds_until_allowed(str(number))
    assert len(rates._tokens) == MOST_CLIENTS
    assert rates.seconds_until_allowed(str(MOST_CLIENTS + 4)) == 1.0


def application(**limits: Any) -> Any:
    return create_application([Offer(BRITTLE)], limits=ServiceLimits(**limits), clock=Clock())


def test_too_many_requests_are_refused_with_a_sentence_and_other_clients_are_served() -> None:
    app = application(client_requests=2.0)
    with TestClient(app, OWN) as http:
        other = TestClient(app, OWN, client=("10.0.0.2", 1))
        assert [http.get("/v2/health").status_code for _ in range(3)] == [200, 200, 429]
        refused = http.post("/agentgym/textcraft/brittle/test/create")
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
        told = refused.json()["error"]
        assert told["code"] == "too_many_requests"
        assert told["message"] == "a client may send at most 2 requests per second: try again in a moment"
        assert other.get("/v2/health").status_code == 200


def test_a_client_has_no_more_episodes_than_its_share_over_all_protocols() -> None:
    app = application(client_episodes=2)
    with TestClient(app, OWN) as http:
        other = TestClient(app, OWN, client=("10.0.0.2", 1))
        world = http.get("/v2/worlds").json()["worlds"][0]["id"]
        task = http.get(f"/v2/worlds/{world}/tasks?split=train&count=1").json()["tasks"][0]

        def created(client: TestClient, key: str) -> Any:
            return client.post("/v2/episodes", json={"world": world, "task": task, "seed": 0, "key": key})

        first = created(http, "first").json()["episode"]
        number = http.post("/agentgym/textcraft/brittle/test/create").json()["id"]
        gym = {"id": number, "data_idx": 0}
        assert http.post("/agentgym/textcraft/brittle/test/reset", json=gym).status_code == 200
        refused = created(http, "second")
        assert (refused.status_code, refused.json()["error"]["code"]) == (429, "too_many_episodes")
        assert "at most 2 of a client's episodes may be open" in refused.json()["error"]["message"]
        body = {"episodes": [{"world": world, "task": task, "seed": 0, "key": "third"}]}
        (outcome,) = http.post("/v2/batch/create", json=body).json()["outcomes"]
        assert outcome["error"]["code"] == "too_many_episodes"
        with http.websocket_connect("ws://localhost/openenv/brittle/test/ws") as session:
            session.send_json({"type": "reset"})
            assert session.receive_json()["data"]["code"] == "CAPACITY_REACHED"
            assert created(http, "first").json()["episode"] == first  # sent again, it is the same episode
            assert created(other, "fourth").status_code == 200
            http.delete(f"/v2/episodes/{first}")
            session.send_json({"type": "reset"})
            assert session.receive_json()["type"] == "observation"


def test_our_client_tries_again_and_a_session_waits_for_its_turn() -> None:
    with serving(Offer(BRITTLE), limits=ServiceLimits(client_requests=20.0)) as url:
        world = RemoteWorld(url=url, world=BRITTLE, version="3", retries=20)
        environment = world.make(world.tasks("test", 1)[0], 0)
        environment.reset()
        seen = [environment.step("count").observation.text.split()[0] for _ in range(20)]
        assert seen == [str(number) for number in range(1, 21)]
        environment.close()
        time.sleep(1.0)  # a handshake is no message that waits for its turn: it is refused with 429
        address = f"ws{url.removeprefix('http')}/openenv/brittle/test/ws"
        with connect(address, proxy=None) as session:
            for _ in range(10):
                session.send('{"type": "reset"}')
            assert [json.loads(session.recv())["type"] for _ in range(10)] == ["observation"] * 10


@pytest.mark.parametrize("limits", [{"client_episodes": 0}, {"client_requests": 0.0}, {"client_requests": -1.0}])
def test_a_limit_is_above_0(limits: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="must be above 0"):
        ServiceLimits(**limits)


def test_the_openapi_document_says_the_limits() -> None:
    app = application(client_requests=50.0, client_episodes=64, episodes=100)
    with TestClient(app, OWN) as http:
        described = http.get("/v2/openapi.json").json()["info"]["description"]
    assert "At most 100 episodes and 2048 connections may be open" in described
    assert "Each client, known by its address, has at most 64 open episodes and 50 requests per second." in described
    assert "answered 429" in described
    assert "Each client" not in ServiceLimits().description
