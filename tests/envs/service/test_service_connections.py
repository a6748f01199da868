"""A client that is slow, or opens many connections, keeps nobody else out; the server answers to its own names only."""

from __future__ import annotations

import contextlib
import json
import socket
import time
from collections.abc import Iterator
from contextlib import closing

import httpx
import pytest
from fastapi.testclient import TestClient
from service_samples import BRITTLE, ENDLESS, Endless, serving
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from envs.service.application import create_application
from envs.service.connections import MOST_HEAD_BYTES
from envs.service.limits import ServiceLimits
from envs.service.offers import Offer
from envs.service.server import serve

HEALTH = b"GET /v2/health HTTP/1.1\r\nHost: localhost\r\n\r\n"
LIMITS = ServiceLimits(request_seconds=1.0)


@pytest.fixture(scope="module")
def hasty() -> Iterator[str]:
    """A server that does not wait long for a request."""
    with serving(Offer(BRITTLE), limits=LIMITS) as url:
        yield url


def connected(url: str) -> socket.socket:
    return socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])), timeout=60)


def heard(connection: socket.socket) -> bytes:
    """All that the server says until it hangs up."""
    said = b""
    while more := connection.recv(65_536):
        said += more
    return said


def refusal(said: bytes) -> tuple[int, str]:
    head, _, body = said.partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body)["error"]["code"]


def trickle(connection: socket.socket, start: bytes, piece: bytes) -> bytes:
    """Send a piece now and then until the server has enough of it; what it says."""
    connection.sendall(start)
    connection.settimeout(0.05)
    while True:
        try:
            said = connection.recv(65_536)
        except TimeoutError:
            connection.sendall(piece)
        else:
            connection.settimeout(60)
            return said


@pytest.mark.parametrize(
    ("start", "piece"),
    [
        (b"GET /v2/health", b"x"),
        (b"GET /v2/health HTTP/1.1\r\nHost: localhost\r\n", b"X-Header: slow\r\n"),
        (b"POST /v2/episodes HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9999\r\n\r\n", b"x"),
        (b"POST /v2/episodes HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n"),
        (b"POST /v2/episodes HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n", b""),
    ],
)
def test_a_head_or_a_body_that_comes_slowly_is_refused(hasty: str, start: bytes, piece: bytes) -> None:
    with closing(connected(hasty)) as connection:
        assert refusal(trickle(connection, start, piece)) == (408, "request_too_slow")


def test_a_slow_second_request_is_refused_as_the_first(hasty: str) -> None:
    with closing(connected(hasty)) as connection:
        connection.sendall(HEALTH)
        assert b" 200 " in connection.recv(65_536)
        assert refusal(trickle(connection, b"GET /v2/health", b"x")) == (408, "request_too_slow")


def test_what_comes_after_an_answer_is_not_waited_for(hasty: str) -> None:
    # The body is refused at once; its sender goes on, and would hold the connection for ever.
    start = b"POST /v2/episodes HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9999999999\r\n\r\n"
    with closing(connected(hasty)) as connection:
        assert refusal(trickle(connection, start, b"x")) == (413, "body_too_large")
        with pytest.raises(OSError, match=r"reset|Broken pipe|closed"):
            for _ in range(10_000):
                connection.sendall(b"x")
                time.sleep(0.01)


def test_a_client_that_does_not_read_its_answers_is_hung_up_on() -> None:
    Endless.go_on.set()
    with serving(Offer(ENDLESS), limits=LIMITS) as url:
        (world,) = httpx.get(f"{url}/v2/worlds", timeout=60).json()["worlds"]
        path = f"/v2/worlds/{world['id']}/tasks?split=test&count=1024"
        with socket.socket() as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.settimeout(60)
            connection.connect(("127.0.0.1", int(url.rpartition(":")[2])))
            asked = 400
            connection.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode() * asked)
            counted = "turnwise_service_requests_total"
            answered, before = -1.0, -2.0
            while answered != before:  # until it has given up: no answer of the many was added
                time.sleep(2 * LIMITS.request_seconds)
                lines = httpx.get(f"{url}/v2/metrics", timeout=60).text.splitlines()
                (line,) = [line for line in lines if line.startswith(counted) and "/tasks" in line]
                before, answered = answered, float(line.rpartition(" ")[2])
            assert answered < asked
            with contextlib.suppress(ConnectionResetError):
                assert len(heard(connection)) < asked * 50_000


def test_a_session_that_does_not_read_its_answers_is_hung_up_on_and_others_are_served(hasty: str) -> None:
    address = f"ws{hasty.removeprefix('http')}/openenv/brittle/test/ws"
    long = json.dumps({"type": "x" * 900_000})  # an unknown type is named in the answer
    with connect(address, proxy=None, max_size=None, max_queue=1, close_timeout=0.1) as session:
        with pytest.raises(ConnectionClosed):
            for _ in range(1000):
                session.send(long)
        assert httpx.get(f"{hasty}/v2/health", timeout=60).status_code == 200


def test_a_connection_that_says_nothing_is_closed_without_a_word(hasty: str) -> None:
    with closing(connected(hasty)) as connection:
        assert heard(connection) == b""


def test_a_connection_that_waits_for_its_next_request_is_kept(hasty: str) -> None:
    with closing(connected(hasty)) as connection:
        for _ in range(2):
            connection.sendall(HEALTH)
            assert b" 200 " in connection.recv(65_536)
            time.sleep(1.5 * LIMITS.request_seconds)


def test_a_head_that_is_too_large_and_what_is_no_http_are_refused_in_the_form_of_all_refusals(hasty: str) -> None:
    with closing(connected(hasty)) as connection:
        connection.sendall(b"GET /v2/health HTTP/1.1\r\nX-Header: " + b"x" * (MOST_HEAD_BYTES + 1))
        assert refusal(heard(connection)) == (431, "head_too_large")
    for nonsense in (b"hello\r\n\r\n", b"\x16\x03\x01\x02\x00\x01", b"GET / HTTP/9.9\r\n\r\n"):
        with closing(connected(hasty)) as connection:
            connection.sendall(nonsense)
            assert refusal(heard(connection)) == (400, "invalid_request")


def test_one_connection_too_many_is_refused_and_idle_ones_make_room() -> None:
    with serving(Offer(BRITTLE), limits=ServiceLimits(connections=3, request_seconds=5.0)) as url:
        silent = [connected(url) for _ in range(3)]
        with closing(connected(url)) as one_more:
            assert refusal(heard(one_more)) == (503, "too_many_connections")
        assert [heard(each) for each in silent] == [b"", b"", b""]  # each was closed in its time
        until_answered(url)
        for each in silent:
            each.close()


def until_answered(url: str) -> None:
    while True:
        try:
            if httpx.get(f"{url}/v2/health", timeout=60).status_code == 200:
                return
        except httpx.HTTPError:
            time.sleep(0.05)


def test_more_connections_than_a_process_may_have_are_refused_at_the_start() -> None:
    with pytest.raises(ValueError, match=r"connections must be at most \d+, since this process may open \d+ files"):
        serve([BRITTLE], limits=ServiceLimits(connections=2**40))


# The names that it answers to


@pytest.mark.parametrize(
    ("bound", "others", "named", "status"),
    [
        ("127.0.0.1", (), "127.0.0.1:8600", 200),
        ("127.0.0.1", (), "localhost", 200),
        ("127.0.0.1", (), "LOCALHOST:1", 200),
        ("::1", (), "[::1]:8600", 200),
        ("127.0.0.1", (), "evil.example", 421),
        ("127.0.0.1", (), "127.0.0.1.evil.example:8600", 421),
        ("127.0.0.1", (), "user@evil.example", 421),
        ("127.0.0.1", (), "10.0.0.1", 421),
        ("127.0.0.1", (), "[::1", 421),
        ("127.0.0.1", (), "", 421),
        ("127.0.0.1", ("worlds.example",), "worlds.example:8600", 200),
        ("127.0.0.1", ("worlds.example",), "sub.worlds.example", 421),
        ("worlds.example", (), "Worlds.Example:8600", 200),
        ("10.0.0.1", (), "10.0.0.1:8600", 200),
        ("10.0.0.1", (), "10.0.0.2:8600", 421),
        ("0.0.0.0", (), "10.0.0.1:8600", 200),
        ("::", (), "[fd00::1]:8600", 200),
        ("0.0.0.0", (), "evil.example:8600", 421),
        ("0.0.0.0", ("worlds.example",), "worlds.example", 200),
    ],
)
def test_a_server_answers_to_its_own_names(bound: str, others: tuple[str, ...], named: str, status: int) -> None:
    app = create_application([Offer(BRITTLE)], host=bound, other_hosts=others)
    with TestClient(app) as http:
        for path in ("/v2/health", "/v2/worlds"):
            answer = http.get(path, headers={"Host": named})
            assert answer.status_code == status
            if status != 200:
                assert answer.json()["error"]["code"] == "wrong_host"


def test_a_foreign_name_is_refused_before_its_token_is_looked_at() -> None:
    with TestClient(create_application([Offer(BRITTLE)], token="sesame")) as http:
        headers = {"Host": "evil.example", "Authorization": "Bearer sesame"}
        assert http.get("/v2/worlds", headers=headers).status_code == 421
