"""A judge as a reward, asked over HTTP: a small server on the loopback that answers as OpenAI's endpoint does."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from turnwise.agent import judge
from turnwise.agent.added_rewards import require_added_rewards, with_added_rewards
from turnwise.agent.loop import RolloutResult
from turnwise.checking.added_rewards import CheckedReward
from turnwise.config.agent import AddedReward
from turnwise.config.schema import RewardSection
from turnwise.errors import ConfigurationError
from turnwise.world import make_world

EPISODES = CheckedReward("", {}).episodes
PROMPT = "How short is it, from 0 to 10?\n{transcript}\nAnswer with one number."


@dataclass
class Endpoint:
    """What the server was asked, and what it answers."""

    address: str
    folder: Path
    requests: list[dict[str, Any]] = field(default_factory=list)
    keys: list[str | None] = field(default_factory=list)
    status: int = 200
    answer: str = "I would say 7.5"


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, turnwise_home: Path) -> Iterator[Endpoint]:
    monkeypatch.setenv("DVC_ROOT", str(tmp_path))
    monkeypatch.setattr(judge, "SECONDS_BETWEEN_TRIES", 0.0)
    (tmp_path / "short.txt").write_text(PROMPT)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            told.requests.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            told.keys.append(self.headers.get("Authorization"))
            body = json.dumps({"choices": [{"message": {"content": told.answer}}]}).encode()
            self.send_response(told.status if self.path == "/v1/chat/completions" else 404)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    told = Endpoint(f"http://127.0.0.1:{server.server_address[1]}/v1", tmp_path)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield told
    server.shutdown()
    thread.join()
    server.server_close()


def asked(endpoint: Endpoint, **options: Any) -> RolloutResult:
    known = {"address": endpoint.address, "model": "small", "prompt": "short.txt", "highest": 10.0}
    section = AddedReward(function="judge", options={**known, "maximum_calls": 100, **options})
    return with_added_rewards(RolloutResult(list(EPISODES), []), {"short": section})


def test_the_number_is_a_share_of_the_range_and_the_judge_has_read_the_episode(endpoint: Endpoint) -> None:
    played = asked(endpoint)
    assert [each.turns[-1].rewards["short"] for each in played.trajectories] == [0.75] * len(EPISODES)
    request = endpoint.requests[0]
    assert (request["model"], request["temperature"], request["max_tokens"]) == ("small", 0.0, 64)
    contents = {each["messages"][0]["content"] for each in endpoint.requests}
    assert contents == {PROMPT.replace("{transcript}", judge.transcript(each)) for each in EPISODES}
    assert "[turn 1: observation]\nobservation 0\n[turn 1: reply]" in judge.transcript(EPISODES[0])


def test_what_was_asked_is_not_asked_again_whatever_it_would_answer_now(endpoint: Endpoint) -> None:
    first = asked(endpoint)
    count, endpoint.answer = len(endpoint.requests), "1"
    assert asked(endpoint).trajectories == first.trajectories
    assert len(endpoint.requests) == count == len(EPISODES)
    assert asked(endpoint, model="other").trajectories[0].turns[-1].rewards["short"] == 0.1


def test_a_judge_that_fails_gives_missing_data_and_keeps_nothing(endpoint: Endpoint, turnwise_home: Path) -> None:
    endpoint.status = 500
    played = asked(endpoint, retries=1)
    assert played.trajectories == [] and len(played.lost) == len(EPISODES)
    assert "must answer; found status 500" in played.lost[0].reason
    assert len(endpoint.requests) == 2 * len(EPISODES), "each is tried again"
    assert list(turnwise_home.rglob("*.json")) == []
    endpoint.status = 401
    endpoint.requests.clear()
    asked(endpoint, retries=5)
    assert len(endpoint.requests) == len(EPISODES), "what is refused is not tried again"


@pytest.mark.parametrize("answer", ["very short", "11", "-1", ""])
def test_an_answer_without_a_number_in_the_range_is_missing(answer: str, endpoint: Endpoint) -> None:
    endpoint.answer = answer
    played = asked(endpoint)
    assert played.trajectories == []
    assert "a judge's answer must end with a number from 0 to 10" in played.lost[0].reason


def test_a_judge_that_nobody_serves_is_missing_data(endpoint: Endpoint) -> None:
    played = asked(endpoint, address="http://127.0.0.1:9/v1", retries=0)
    assert played.trajectories == [] and "ConnectError" in played.lost[0].reason


def test_the_cost_is_bounded_and_raising_the_bound_asks_for_nothing_twice(endpoint: Endpoint) -> None:
    options: dict[str, Any] = {"address": endpoint.address, "model": "small", "prompt": "short.txt", "highest": 10.0}
    for each in EPISODES[:3]:
        judge.judged(each, maximum_calls=3, **options)
    with pytest.raises(ConfigurationError, match=r"\b3\b.*TW-judge-calls"):
        judge.judged(EPISODES[3], maximum_calls=3, **options)
    assert judge.judged(EPISODES[0], maximum_calls=3, **options) == 0.75, "what is kept is free"
    judge.judged(EPISODES[3], maximum_calls=4, **options)
    assert len(endpoint.requests) == 4


def test_the_key_comes_from_the_environment_and_is_kept_nowhere(
    endpoint: Endpoint, turnwise_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JUDGE_KEY", "very-secret")
    asked(endpoint, key_variable="JUDGE_KEY")
    assert set(endpoint.keys) == {"Bearer very-secret"}
    kept = list(turnwise_home.rglob("*.json"))
    assert kept and not any("very-secret" in path.read_text() for path in kept)
    with pytest.raises(ConfigurationError, match=r"NO_SUCH_KEY.*TW-unset-variable"):
        asked(endpoint, key_variable="NO_SUCH_KEY", model="another")


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"prompt": "long.txt"}, "options.prompt must name a file; found nothing at"),
        ({"maximum_calls": 0}, "maximum_calls must be at least 1"),
        ({"modle": "x"}, "did you mean 'model'"),
        ({"address": "127.0.0.1:8000"}, "options.address must be such as http://127.0.0.1:8600"),
        ({"lowest": 10.0, "highest": 1.0}, "options.lowest must be below highest; found 10 and 1"),
        ({"prompt": "nowhere.txt"}, "options.prompt must say where the episode goes, with {transcript}"),
        ({"key_variable": "NO_SUCH_KEY"}, "NO_SUCH_KEY is not set"),
    ],
)
def test_a_judge_is_checked_before_compute(changed: dict[str, Any], said: str, endpoint: Endpoint) -> None:
    (endpoint.folder / "nowhere.txt").write_text("How short is it?")
    options = {"address": endpoint.address, "model": "small", "prompt": "short.txt", "maximum_calls": 10, **changed}
    section = RewardSection(level="outcome", weight=1.0, function="judge", options=options)
    with pytest.raises(ConfigurationError) as found:
        require_added_rewards({"short": section}, make_world("bandit", {}))
    assert said in str(found.value) and endpoint.requests == []
