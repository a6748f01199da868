"""Who may ask, how much they may send, and that every refusal says why in the same form."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import httpx
import pytest
from fastapi.testclient import TestClient
from service_samples import BRITTLE, serving

from envs.service import schema
from envs.service.application import create_application
from envs.service.guards import require_safe
from envs.service.limits import ServiceLimits
from envs.service.offers import Offer
from envs.service.reasons import Reason
from envs.service.server import serve

TOKEN = "a long secret with spaces and ümläut"
LIMITS = ServiceLimits(body_bytes=2000)
OWN = "http://localhost"


@pytest.fixture(scope="module")
def guarded() -> Iterator[TestClient]:
    with TestClient(create_application([Offer(BRITTLE)], token=TOKEN, limits=LIMITS), OWN) as http:
        yield http


@pytest.fixture(scope="module")
def right() -> dict[bytes, bytes]:
    return {b"Authorization": f"Bearer {TOKEN}".encode()}


def code(response: httpx.Response) -> str:
    assert set(response.json()) == {"error"} and set(response.json()["error"]) == {"code", "message"}
    found: str = response.json()["error"]["code"]
    assert Reason(found)
    return found


@pytest.mark.parametrize(
    "given",
    [
        None,
        b"",
        b"Bearer",
        b"Bearer ",
        TOKEN.encode(),
        b"Basic " + TOKEN.encode(),
        b"bearer " + TOKEN.encode(),
        b"Bearer " + TOKEN.encode()[:-1],
        b"Bearer " + TOKEN.encode() + b"x",
    ],
)
def test_without_the_token_nothing_is_told_but_that_the_server_is_there(
    guarded: TestClient, given: bytes | None
) -> None:
    headers = {} if given is None else {b"Authorization": given}
    for method, path in (
        ("GET", "/v2/worlds"),
        ("GET", "/v2/metrics"),
        ("GET", "/v2/openapi.json"),
        ("GET", "/nowhere"),
        ("POST", "/v2/episodes"),
        ("POST", "/v2/batch/step"),
        ("DELETE", "/v2/episodes/x"),
    ):
        refused = guarded.request(method, path, headers=headers)
        assert (refused.status_code, code(refused)) == (401, "unauthorised")
        assert refused.headers["www-authenticate"] == "Bearer"
        assert TOKEN not in refused.text
    assert guarded.get("/v2/health", headers=headers).json() == {"status": "ok", "schema_version": 2}


def test_with_the_token_the_worlds_are_told(guarded: TestClient, right: dict[bytes, bytes]) -> None:
    (world,) = guarded.get("/v2/worlds", headers=right).json()["worlds"]
    assert guarded.get(f"/v2/worlds/{world['id']}", headers=right).json() == world
    assert (world["world"], world["parameters"], world["facts"]["version"]) == (BRITTLE, {}, "3")


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "localhost"])
def test_a_loopback_address_needs_no_token(host: str) -> None:
    require_safe(host, None)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "10.0.0.1", "example.org", "localhost.example.org"])
def test_another_host_is_refused_without_a_token_before_anything_is_served(host: str) -> None:
    with pytest.raises(ValueError, match=r"host must be a loopback address such as 127.0.0.1 while there is no token"):
        serve([BRITTLE], host=host)
    with pytest.raises(ValueError, match="at least one character"):
        serve([BRITTLE], host=host, token="")
    require_safe(host, "secret")


def test_a_body_that_is_too_large_is_refused(guarded: TestClient, right: dict[bytes, bytes]) -> None:
    large = b" " * 2001
    refused = guarded.post("/v2/episodes", content=large, headers=right)
    assert (refused.status_code, code(refused)) == (413, "body_too_large")
    allowed = guarded.post("/v2/episodes", content=b" " * 2000, headers=right)
    assert (allowed.status_code, code(allowed)) == (422, "invalid_request")


def test_a_body_that_does_not_say_its_length_is_not_read_to_its_end() -> None:
    with serving(Offer(BRITTLE), limits=LIMITS) as url:

        def pieces() -> Iterator[bytes]:
            for _ in range(50):
                yield b"x" * 100

        refused = httpx.post(f"{url}/v2/episodes", content=pieces(), timeout=30)
        assert (refused.status_code, code(refused)) == (413, "body_too_large")
        # One who announces gigabytes is refused before the first byte.
        port = int(url.rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
            connection.sendall(b"POST /v2/episodes HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9999999999\r\n\r\n")
            assert b" 413 " in connection.recv(4000)


@pytest.mark.parametrize(
    ("method", "path", "content", "status", "wanted"),
    [
        ("GET", "/v2", b"", 404, "unknown_route"),
        ("GET", "/v1/health", b"", 404, "unknown_route"),
        ("GET", "/docs", b"", 404, "unknown_route"),
        ("PUT", "/v2/worlds", b"", 405, "unknown_route"),
        ("GET", "/v2/worlds/none", b"", 404, "unknown_world"),
        ("GET", "/v2/worlds/none/tasks?split=test&count=1", b"", 404, "unknown_world"),
        ("GET", "/v2/worlds/WORLD/tasks?split=all&count=1", b"", 422, "invalid_request"),
        ("GET", "/v2/worlds/WORLD/tasks?split=test&count=-1", b"", 422, "invalid_request"),
        ("GET", "/v2/worlds/WORLD/tasks?split=test&count=101", b"", 422, "task_refused"),
        ("POST", "/v2/episodes", b"{", 422, "invalid_request"),
        ("POST", "/v2/episodes", b"[]", 422, "invalid_request"),
        ("POST", "/v2/episodes", b"\xff", 400, "invalid_request"),
        ("POST", "/v2/episodes/x/reset", b"", 404, "unknown_episode"),
        ("POST", "/v2/episodes/x/step", b'{"number": 1, "action": "a"}', 404, "unknown_episode"),
        ("POST", "/v2/episodes/x/step", b'{"number": "one", "action": "a"}', 422, "invalid_request"),
        ("GET", "/v2/episodes/x/observation", b"", 404, "unknown_episode"),
        ("POST", "/v2/batch/reset", b'{"episodes": []}', 422, "invalid_request"),
    ],
)
def test_every_refusal_has_a_status_and_a_reason(
    guarded: TestClient,
    right: dict[bytes, bytes],
    method: str,
    path: str,
    content: bytes,
    status: int,
    wanted: str,
) -> None:
    (world,) = guarded.get("/v2/worlds", headers=right).json()["worlds"]
    headers = {**right, b"Content-Type": b"application/json"}
    refused = guarded.request(method, path.replace("WORLD", world["id"]), content=content, headers=headers)
    assert (refused.status_code, code(refused)) == (status, wanted)


def test_the_first_tasks_are_a_prefix_of_more(guarded: TestClient, right: dict[bytes, bytes]) -> None:
    (world,) = guarded.get("/v2/worlds", headers=right).json()["worlds"]
    lists = [
        guarded.get(f"/v2/worlds/{world['id']}/tasks?split=train&count={count}", headers=right).json()["tasks"]
        for count in (0, 2, 5)
    ]
    assert [len(each) for each in lists] == [0, 2, 5]
    assert lists[2][:2] == lists[1]


def test_the_openapi_document_describes_every_route_and_reply(guarded: TestClient, right: dict[bytes, bytes]) -> None:
    document = guarded.get("/v2/openapi.json", headers=right).json()
    assert all(path.startswith(("/v2/", "/agentgym/", "/openenv/")) for path in document["paths"])
    for path, operations in document["paths"].items():
        for operation in operations.values():
            assert operation["description"]
            if path.startswith("/v2/"):  # a refusal in AgentGym's protocol has AgentGym's own form
                assert "ErrorReply" in str(operation["responses"]["4XX"])
    assert {"Create", "PlayStep", "Stepped", "WorldFacts", "Task", "Step"} <= set(document["components"]["schemas"])
    assert document["info"]["version"] == str(schema.SCHEMA_VERSION)


def test_requests_are_counted_by_route_and_not_by_address() -> None:
    with (
        TestClient(create_application([Offer(BRITTLE)]), OWN) as http,
        TestClient(create_application([Offer(BRITTLE)]), OWN) as other,
    ):
        for number in range(3):
            http.delete(f"/v2/episodes/{number}")
            http.get(f"/nowhere/{number}")
        lines = http.get("/v2/metrics").text.splitlines()
        counted = 'turnwise_service_requests_total{route="/v2/episodes/{episode}",status="200"} 3.0'
        assert counted in lines
        assert 'turnwise_service_requests_total{route="none",status="404"} 3.0' in lines
        assert counted not in other.get("/v2/metrics").text  # each application counts for itself
