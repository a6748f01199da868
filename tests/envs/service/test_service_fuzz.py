"""Whatever is sent, the answer has a documented status and reason, never a 500, and other episodes go on unharmed.

The requests come from tables, so that they are the same ones every time: 6,000 of them, to a real server. Each test
holds itself to the number that it sends: see `REQUESTS`.
"""

from __future__ import annotations

import itertools
import json
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from service_samples import BRITTLE, serving

from envs.service.limits import ServiceLimits
from envs.service.offers import Offer
from envs.service.reasons import STATUS, Reason

LIMITS = ServiceLimits(body_bytes=200_000, episodes=64)
OTHER_STATUSES = {
    (400, Reason.INVALID_REQUEST),  # a body that is no UTF-8, a request that is no HTTP
    (405, Reason.UNKNOWN_ROUTE),  # a method that the address does not take
}
BUGS = {Reason.INTERNAL, Reason.WORLD_FAILED, Reason.WORKER_DIED, Reason.WORLD_HUNG}

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "BREW")
DEEP = 20_000
VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1.5, 1e308, -1e308, 2**31, 2**53 + 1, 2**63, 2**64, -(2**70), 10**400),
    *("", " ", "x" * 5_000, "é√漢🂡", "\x00", "\ud800", "../../etc/passwd", "0", "1e5", "null", "' OR 1=1 --"),
    *([], {}, [[]], [None], {"": None}, {"a": {"b": {"c": []}}}, ["x"] * 50),
)
BODIES: tuple[bytes, ...] = (
    *(b"", b" ", b"{", b"}", b"[]", b"{}", b"null", b"true", b'"x"', b"1", b"-", b"NaN", b"Infinity", b"-Infinity"),
    *(b"1e999", b"9" * 5_000, b'{"a": NaN}', b'{"a": 1, "a": 2}', b"[1,", b'{"a": 1}}', b"{'a': 1}", b"\xef\xbb\xbf{}"),
    *(b"\xff", b'"\xc3"', b'{"number": 1, "action": "\xff"}', b"\x00", b"[" * DEEP, b"[" * DEEP + b"]" * DEEP),
    *(b'{"a":' * DEEP, b'{"a":' * DEEP + b"1" + b"}" * DEEP, b'"' + b"x" * 150_000 + b'"', b"x" * 200_001),
    *(b"a=1&b=2", b"<a/>", b"\xf0\x9f\x82\xa1", b'{"key": "\\ud800"}', b'{"key": "\\u0000"}', b"/* */ {}"),
)
NAMES = (
    *("x", "0", "-1", "None", "..", ".", "%2e%2e%2f", "%2F", "%00", "%ff", "%F0%9F%82%A1", "%25", "a" * 5_000),
    *("{episode}", "'", "%0d%0aX-Header:%20x", ";", "health", " ".replace(" ", "%20"), "%", "%zz"),
)
"""Of worlds and episodes, as they stand in an address."""
QUERIES = (
    "",
    "x",
    "-1",
    "0",
    "1",
    "1025",
    "200001",
    "1e3",
    "1.5",
    "9" * 400,
    "9" * 5_000,
    "null",
    "%00",
    "%ff",
    "train",
)


REQUESTS = {
    "test_every_part_of_every_body_may_be_anything": 1_900,
    "test_every_body_may_be_any_bytes_of_any_type": 1_000,
    "test_every_address_may_be_asked_by_any_method_and_name": 1_600,
    "test_every_question_may_have_any_value": 80,
    "test_every_header_may_be_strange": 48,
    "test_real_worlds_refuse_tasks_that_are_none_of_theirs_and_take_any_action": 190,  # for each of four
    "test_calls_of_one_episode_at_once_are_each_answered": 170,
    "test_any_value_is_answered": 180,
}
"""How many requests each test sends at least: a table that has become empty tests nothing."""


class Fuzzed:
    """A server, and what was asked of it so far."""

    def __init__(self, url: str) -> None:
        self.http = httpx.Client(base_url=url, timeout=120)
        self.worlds = {each["world"]: each["id"] for each in self.http.get("/v2/worlds").json()["worlds"]}
        self.answered: Counter[tuple[int, str]] = Counter()
        self._keys = itertools.count()

    def ask(self, method: str, path: str, content: bytes = b"", **options: Any) -> httpx.Response:
        """The answer, which must be a documented one."""
        answer = self.http.request(method, path, content=content, **options)
        code = ""
        if answer.status_code != 200 and method != "HEAD":
            error = answer.json()
            assert set(error) == {"error"} and set(error["error"]) == {"code", "message"}, answer.text
            code = Reason(error["error"]["code"])
            assert error["error"]["message"]
            assert answer.status_code == STATUS[code] or (answer.status_code, code) in OTHER_STATUSES, answer.text
            assert code not in BUGS, (method, path[:100], content[:300], answer.text[:300])
        assert answer.status_code < 500
        self.answered[answer.status_code, str(code)] += 1
        return answer

    def post(self, path: str, body: Any) -> httpx.Response:
        """Ask with a value that JSON can say, lone surrogates and all."""
        return self.ask("POST", path, json.dumps(body).encode(), headers={"Content-Type": "application/json"})

    def creation(self, world: str = BRITTLE) -> dict[str, Any]:
        """A body that creates an episode."""
        tasks = self.ask("GET", f"/v2/worlds/{self.worlds[world]}/tasks?split=test&count=1").json()["tasks"]
        return {"world": self.worlds[world], "task": tasks[0], "seed": 1, "key": f"key-{next(self._keys)}"}

    def opened(self, world: str = BRITTLE) -> str:
        """An episode, reset."""
        episode: str = self.post("/v2/episodes", self.creation(world)).json()["episode"]
        assert self.ask("POST", f"/v2/episodes/{episode}/reset").status_code == 200
        return episode


@pytest.fixture(scope="module")
def fuzzed() -> Iterator[Fuzzed]:
    """A server, on which an episode is played during all other requests: it must go on as if it were alone."""
    worlds = (Offer(BRITTLE), Offer("frozen_lake"), Offer("search"), Offer("bandit"), Offer("textcraft"))
    with serving(*worlds, limits=LIMITS) as url:
        found = Fuzzed(url)
        yield found
        found.http.close()


@pytest.fixture(autouse=True)
def bystander(fuzzed: Fuzzed, request: pytest.FixtureRequest) -> Iterator[None]:
    """An episode that is open while a test asks its strange things."""
    episode = fuzzed.opened()

    def count(number: int) -> str:
        step = fuzzed.post(f"/v2/episodes/{episode}/step", {"number": number, "action": "count"}).json()
        text: str = step["step"]["observation"]["text"]
        return text

    assert count(1) == "1 on 1 thread"
    before = fuzzed.answered.total()
    yield
    assert fuzzed.answered.total() - before >= REQUESTS[request.function.__name__]
    assert count(2) == "2 on 1 thread"
    assert fuzzed.ask("DELETE", f"/v2/episodes/{episode}").json() == {"closed": True}
    assert fuzzed.ask("GET", "/v2/health").json()["status"] == "ok"


def bodies(fuzzed: Fuzzed, episode: str) -> dict[str, dict[str, Any]]:
    """For every address that takes a body one that it accepts."""
    creation = fuzzed.creation()
    remaining = {"turns": 1, "actions_per_turn": 1, "actions": 1}
    generator = {"state": "1", "increment": "3", "has_half": False, "half": 0}
    return {
        f"/v2/worlds/{fuzzed.worlds[BRITTLE]}/limits": {"task": creation["task"]},
        "/v2/episodes": creation,
        f"/v2/episodes/{episode}/step": {"number": 1, "action": "count"},
        f"/v2/episodes/{episode}/decide": {"baseline": "random", "remaining": remaining, "generator": generator},
        "/v2/batch/create": {"episodes": [fuzzed.creation()]},
        "/v2/batch/reset": {"episodes": [episode]},
        "/v2/batch/step": {"steps": [{"episode": episode, "number": 1, "action": "count"}]},
        "/v2/batch/close": {"episodes": ["nobody"]},
    }


def altered(value: Any) -> Iterator[Any]:
    """The value with one of its parts, at any depth, replaced by each of `VALUES`, left out, or next to a stranger."""
    yield from VALUES
    if isinstance(value, dict):
        yield {**value, "stranger": 1}
        for name, part in value.items():
            yield {other: kept for other, kept in value.items() if other != name}
            yield from ({**value, name: changed} for changed in altered(part))
    if isinstance(value, list):
        yield value * 2
        yield value * 1025
        yield from ([*value[:-1], changed] for changed in altered(value[-1]))


def test_every_part_of_every_body_may_be_anything(fuzzed: Fuzzed) -> None:
    episode = fuzzed.opened()
    for path, body in bodies(fuzzed, episode).items():
        for changed in altered(body):
            answer = fuzzed.post(path, changed)
            if answer.status_code == 200 and path.endswith(("/episodes", "/create")):
                free(fuzzed, answer.json())
    fuzzed.ask("DELETE", f"/v2/episodes/{episode}")


def free(fuzzed: Fuzzed, told: dict[str, Any]) -> None:
    """Close what was created after all."""
    for outcome in told.get("outcomes", [{"reply": told}]):
        if outcome["reply"]:
            fuzzed.ask("DELETE", f"/v2/episodes/{outcome['reply']['episode']}")


def test_every_body_may_be_any_bytes_of_any_type(fuzzed: Fuzzed) -> None:
    episode = fuzzed.opened()
    paths = [*bodies(fuzzed, episode), f"/v2/episodes/{episode}/reset"]
    for path, body in itertools.product(paths, BODIES):
        for kind in ("application/json", "text/plain; charset=utf-16", "application/x-www-form-urlencoded"):
            fuzzed.ask("POST", path, body, headers={"Content-Type": kind})
    fuzzed.ask("DELETE", f"/v2/episodes/{episode}")


def test_every_address_may_be_asked_by_any_method_and_name(fuzzed: Fuzzed) -> None:
    known = [
        *("/v2/health", "/v2/metrics", "/v2/worlds", "/v2/openapi.json", "/v2/episodes", "/v2/batch/create"),
        *("/", "/v1/health", "/v2", "/v2/", "//v2/health", "/v2/health/", "/docs", "/favicon.ico", "*"),
        *(f"/v2/worlds/{name}{end}" for name in NAMES for end in ("", "/tasks?split=test&count=1", "/limits")),
        *(f"/v2/episodes/{name}{end}" for name in NAMES for end in ("", "/step", "/reset", "/observation", "/decide")),
    ]
    for path, method in itertools.product(known, METHODS):
        fuzzed.ask(method, path)


def test_every_question_may_have_any_value(fuzzed: Fuzzed) -> None:
    path = f"/v2/worlds/{fuzzed.worlds[BRITTLE]}/tasks"
    for name, value in itertools.product(("split", "count", "offset", "limit", "stranger"), QUERIES):
        others = {"split": "test", "count": "1"} | {name: value}
        fuzzed.ask("GET", f"{path}?{'&'.join(f'{key}={text}' for key, text in others.items())}")
    for query in ("?", "?split", "?split=test", "?count=1&count=2&split=test", "?" + "a=b&" * 2_000, "?=&&=", "?%"):
        fuzzed.ask("GET", path + query)


def test_every_header_may_be_strange(fuzzed: Fuzzed) -> None:
    headers = [
        *({"Host": host} for host in ("evil.example", "", "[", "localhost:99999999", "a" * 5_000, "é".encode())),
        *({"Authorization": value} for value in ("", "Bearer", "Basic eA==", "x" * 5_000)),
        *({"Content-Type": value} for value in ("", "application/json; charset=nonsense", "/", "multipart/form-data")),
        *({"Connection": "upgrade", "Upgrade": value} for value in ("websocket", "h2c", "")),
        {"Expect": "100-continue"},
        {"Accept-Encoding": "nonsense"},
        {"X-Forwarded-Host": "evil.example", "X-Forwarded-Proto": "https", "Forwarded": "host=evil.example"},
        {"X-HTTP-Method-Override": "DELETE"},
        {"Origin": "http://evil.example", "Access-Control-Request-Method": "DELETE"},
        {"Range": "bytes=0-1"},
        {f"X-Header-{number}": "x" for number in range(200)},
    ]
    for each, (method, path) in itertools.product(headers, (("GET", "/v2/worlds"), ("POST", "/v2/episodes"))):
        fuzzed.ask(method, path, headers=each)


@pytest.mark.parametrize("world", ["frozen_lake", "search", "bandit", "textcraft"])
def test_real_worlds_refuse_tasks_that_are_none_of_theirs_and_take_any_action(fuzzed: Fuzzed, world: str) -> None:
    creation = fuzzed.creation(world)
    for name in creation["task"]:
        for value in VALUES:
            changed = {
                **creation,
                "task": {**creation["task"], name: value},
                "key": f"{world}-{fuzzed.answered.total()}",
            }
            answer = fuzzed.post("/v2/episodes", changed)
            if answer.status_code == 200:
                free(fuzzed, answer.json())
    episode = fuzzed.opened(world)
    number = 1
    for value in VALUES:
        if isinstance(value, str):
            answer = fuzzed.post(f"/v2/episodes/{episode}/step", {"number": number, "action": value})
            number += answer.status_code == 200
    assert number > 5
    fuzzed.ask("DELETE", f"/v2/episodes/{episode}")


def test_calls_of_one_episode_at_once_are_each_answered(fuzzed: Fuzzed) -> None:
    failures: list[BaseException] = []
    for _ in range(8):
        creation = fuzzed.creation()
        episode = fuzzed.post("/v2/episodes", creation).json()["episode"]
        place = f"/v2/episodes/{episode}"
        calls = [
            *[("POST", f"{place}/reset", None)] * 3,
            *[("POST", f"{place}/step", {"number": number, "action": "count"}) for number in (1, 1, 2, 3)],
            *[("DELETE", place, None)] * 3,
            *[("GET", f"{place}/observation", None)] * 2,
            *[("POST", "/v2/episodes", creation)] * 3,
            ("POST", "/v2/batch/close", {"episodes": [episode] * 5}),
        ]

        def call(method: str, path: str, body: Any) -> None:
            try:
                fuzzed.ask(method, path, b"" if body is None else json.dumps(body).encode())
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=call, args=each) for each in calls]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for _ in range(2):  # a creation that came after the close has made another, under the same key
            again = fuzzed.post("/v2/episodes", creation).json()["episode"]
            fuzzed.ask("DELETE", f"/v2/episodes/{again}")
    assert not failures, failures[0]
    lines = fuzzed.ask("GET", "/v2/metrics").text.splitlines()
    still_open = [line for line in lines if line.startswith("turnwise_service_episodes_open")]
    assert sum(float(line.rpartition(" ")[2]) for line in still_open) == 1, "the bystander's"


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@settings(derandomize=True, max_examples=60)
@given(anything)
def test_any_value_is_answered(fuzzed: Fuzzed, value: Any) -> None:
    for path in ("/v2/episodes", "/v2/batch/step", "/v2/episodes/nobody/decide"):
        fuzzed.post(path, value)
