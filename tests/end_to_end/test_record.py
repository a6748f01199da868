"""`turnwise record`: real clients against a real engine, and what is learned from what they leave."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from comparison import Computed
from programs import agents_python
from project_copy import TINY

import turnwise as tw
from flows.commands import cli
from turnwise.data.trajectory_files import read_trajectories
from turnwise.errors import ConfigurationError
from turnwise.store import Reference, default_store

pytestmark = pytest.mark.chain

REQUEST_WITHOUT_ITS_BODY = (
    b"POST /group/1/v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    b"Content-Length: 100\r\nExpect: 100-continue\r\n\r\n"
)
"""A server that reads its body answers with 100 Continue, and waits."""
AGENT = """
import asyncio, os, sys
from agents import Agent, ModelSettings, OpenAIChatCompletionsModel, Runner, function_tool, set_tracing_disabled
from openai import AsyncOpenAI

set_tracing_disabled(True)

@function_tool
def look(direction: str) -> str:
    "Look in a direction."
    return "a lake"

async def main() -> None:
    client = AsyncOpenAI(base_url=sys.argv[1], api_key="key")
    model = OpenAIChatCompletionsModel(model="policy", openai_client=client)
    settings = ModelSettings(max_tokens=8)
    agent = Agent(name="walker", instructions="go", model=model, tools=[look], model_settings=settings)
    first = await Runner.run(agent, "where to?", max_turns=3)
    await Runner.run(agent, [*first.to_input_list(), {"role": "user", "content": "and now?"}], max_turns=3)

asyncio.run(main())
"""


@pytest.fixture
def home(tiny_ablation: Computed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """That of the tiny ablation, for the test alone."""
    shutil.copytree(tiny_ablation.home, tmp_path / "home")
    monkeypatch.setenv("TURNWISE_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def told() -> list[dict[str, Any]]:
    return []


@pytest.fixture
def address(home: Path, told: list[dict[str, Any]]) -> Iterator[str]:
    """An endpoint with the policy of a recorded run."""
    tracking = f"sqlite:///{home / 'mlflow.db'}"
    with (
        tw.record(
            "grpo-or seed 1", written=told.append, context_tokens=160, reply_tokens=12, tracking=tracking
        ) as recording,
        recording.serving() as address,
    ):
        yield address


def client(address: str, episode: str) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{address}/{episode}/v1", api_key="key", max_retries=0)


def talk(address: str, episode: str, turns: int = 2) -> list[Any]:
    """A conversation of so many turns: the log-probabilities of each reply's tokens."""
    messages: list[Any] = [{"role": "user", "content": f"where to, {episode.partition('/')[0]}?"}]
    found = []
    for _ in range(turns):
        asked = client(address, episode).chat.completions.create(
            model="policy", messages=messages, logprobs=True, max_tokens=8
        )
        choice = asked.choices[0]
        assert choice.logprobs is not None and choice.logprobs.content is not None
        found.append([each.logprob for each in choice.logprobs.content])
        messages += [{"role": "assistant", "content": choice.message.content}, {"role": "user", "content": "and now?"}]
    return found


def written(told: dict[str, Any]) -> list[Any]:
    kind, _, digest = told["rollout"].partition("/")
    return read_trajectories(default_store().folder(Reference(kind=kind, digest=digest)))


def test_the_openai_client_talks_and_its_episodes_are_credited_and_learned_from(
    address: str, told: list[dict[str, Any]], home: Path
) -> None:
    names = [f"task-{group}/{episode}" for group in range(2) for episode in range(3)]
    with ThreadPoolExecutor(6) as pool:
        answered = dict(zip(names, pool.map(lambda name: talk(address, name), names), strict=True))
    for place, name in enumerate(names[:-1]):
        httpx.post(f"{address}/{name}/reward", json={"reward": place % 3}).raise_for_status()
    assert httpx.get(f"{address}/status").json() | {"model": ""} == {
        "model": "",
        "episodes": 6,
        "rewarded": 5,
        "turns": 12,
    }
    assert httpx.post(f"{address}/rollout").json() == told[0]
    assert (told[0]["episodes"], told[0]["lost"]) == (5, 1)
    trajectories = written(told[0])
    recorded = {(each.task.id, each.replica): [list(t.log_probabilities) for t in each.turns] for each in trajectories}
    everything = sorted(answered[name] for name in names[:-1])
    assert sorted(recorded.values()) == everything, "what the client was told is what was recorded"
    assert all(not turn.opens_segment for each in trajectories for turn in each.turns)
    learned = tw.learn(tw.load(TINY), told[0]["rollout"], told[0]["policy"], quiet=True)
    # The learner gives every token the log-probability that it was sampled with: the tokens and contexts are exact.
    assert learned.metrics["mismatch_maximum"] < 1e-4 and learned.metrics["gradient_norm"] > 0
    assert learned.metrics["tokens"] == sum(len(t.reply_tokens) for each in trajectories for t in each.turns)


def test_a_stream_says_the_same_in_pieces(address: str) -> None:
    messages: list[Any] = [{"role": "user", "content": "where to?"}]
    stream = client(address, "g/1").chat.completions.create(model="policy", messages=messages, stream=True)
    pieces = [event.choices[0] for event in stream]
    assert pieces[0].delta.role == "assistant" and pieces[-1].finish_reason in ("stop", "length")
    said = "".join(piece.delta.content or "" for piece in pieces)
    again = [*messages, {"role": "assistant", "content": said}, {"role": "user", "content": "and?"}]
    client(address, "g/1").chat.completions.create(model="policy", messages=again)
    assert [each.id for each in client(address, "g/1").models.list()] == ["grpo-or seed 1"]


def test_vllm_answers_with_the_log_probabilities_that_the_learner_gives(home: Path) -> None:
    pytest.importorskip("vllm", reason="vLLM is not installed")
    tracking, told = f"sqlite:///{home / 'mlflow.db'}", list[dict[str, Any]]()
    with (
        tw.record(
            "grpo-or seed 1",
            engine="vllm",
            written=told.append,
            context_tokens=160,
            reply_tokens=12,
            tracking=tracking,
        ) as recording,
        recording.serving() as address,
    ):
        for place in range(3):
            talk(address, f"task/{place}")
            httpx.post(f"{address}/task/{place}/reward", json={"reward": place}).raise_for_status()
    learned = tw.learn(tw.load(TINY), told[0]["rollout"], told[0]["policy"], quiet=True)
    assert learned.metrics["mismatch_maximum"] < 1e-4


@pytest.mark.needs("openai-agents")
def test_an_agent_framework_talks_by_its_base_url_alone(address: str, told: list[dict[str, Any]]) -> None:
    python = agents_python()
    assert python is not None
    environment = {**os.environ, "PYTHONPATH": ""}
    subprocess.run([python, "-c", AGENT, f"{address}/walk/1/v1"], check=True, timeout=120, env=environment)
    posted = httpx.post(f"{address}/walk/1/reward", json={"rewards": {"solved": 1.0}}).json()
    assert posted["turns"] >= 2
    httpx.post(f"{address}/rollout").raise_for_status()
    (trajectory,) = written(told[0])
    assert "look" in trajectory.turns[0].observation or trajectory.turns[0].observation_tokens
    assert len(trajectory.segment_turns) == 1, "it sends back what it was told"


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        ({"temperature": 0.2}, "temperature must be left out, or 1"),
        ({"top_p": 0.5}, "top_p must be left out"),
        ({"stop": ["\n"]}, "stop must be left out"),
        ({"n": 2}, "n must be left out"),
        ({"messages": []}, "messages must be a list of messages with roles"),
        ({"messages": [{"content": "a"}]}, "messages must be a list of messages with roles"),
        ({"messages": [{"role": "user", "content": "a " * 400}]}, "a context must have from 1 to 159 tokens"),
    ],
)
def test_what_would_not_be_the_policys_own_is_refused(address: str, request_: dict[str, Any], message: str) -> None:
    asked = {"model": "policy", "messages": [{"role": "user", "content": "a"}], **request_}
    answer = httpx.post(f"{address}/g/1/v1/chat/completions", json=asked)
    assert answer.status_code == 400 and message in answer.json()["error"]["message"]


def test_an_episode_has_one_reward_and_is_over_then(address: str) -> None:
    assert httpx.post(f"{address}/g/1/reward", json={"reward": 1}).status_code == 404
    talk(address, "g/1", turns=1)
    for wrong in ({}, {"reward": "high"}, {"reward": None}, {"score": 1.0}, {"reward": 1.0, "turns": [{}, {}]}):
        assert httpx.post(f"{address}/g/1/reward", json=wrong).status_code == 400
    assert httpx.post(f"{address}/g/1/reward", json={"reward": 1}).status_code == 200
    assert httpx.post(f"{address}/g/1/reward", json={"reward": 1}).status_code == 409
    with pytest.raises(openai.ConflictError, match="has its reward and is over"):
        talk(address, "g/1", turns=1)


def test_a_token_is_asked_for_where_there_is_one_and_another_machine_never_gets_in_without(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tracking = f"sqlite:///{home / 'mlflow.db'}"
    with (
        tw.record("grpo-or seed 1", context_tokens=160, tracking=tracking) as recording,
        recording.serving(token="secret") as address,
    ):
        with pytest.raises(openai.AuthenticationError):
            talk(address, "g/1")
        assert httpx.get(f"{address}/status", headers={"Authorization": "Bearer secret"}).status_code == 200
        assert httpx.get(f"{address}/status", headers={"Host": "evil.example"}).status_code != 200
    monkeypatch.delenv("TURNWISE_RECORD_TOKEN", raising=False)
    with pytest.raises(ConfigurationError, match="TW-service-address"):
        cli.run(["record", "grpo-or seed 1", "--host", "0.0.0.0"])


def test_no_thread_is_left_and_a_model_folder_answers_too(home: Path, tmp_path: Path) -> None:
    tracking = f"sqlite:///{home / 'mlflow.db'}"
    tw.runs("grpo-or seed 1", tracking=tracking).export(tmp_path / "model")
    before = threading.active_count()
    told: list[dict[str, Any]] = []
    with (
        tw.record(tmp_path / "model", written=told.append, context_tokens=160, reply_tokens=4) as recording,
        recording.serving() as address,
    ):
        talk(address, "g/1", turns=1)
    assert threading.active_count() <= before
    assert told[0]["lost"] == 1 and told[0]["episodes"] == 0, "what is left at the end is written"
    assert "torch" in sys.modules


@pytest.mark.parametrize("estimator", ["gae", "remax", "optimal-token-baseline"])
def test_learning_refuses_what_recorded_episodes_do_not_have(estimator: str) -> None:
    chosen = tw.load(TINY, settings={"credit.estimator": estimator})
    with pytest.raises(ConfigurationError, match="TW-credit-needs-more"):
        tw.learn(chosen, "rollout/1", "policy/1", quiet=True)


def test_ctrl_c_twice_ends_the_command_with_what_was_recorded_and_no_traceback(
    turnwise_home: Path, tmp_path: Path
) -> None:
    base = Path(tw.__file__).parent / "policy" / "base" / "base-1m"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "flows.commands.cli", "record", str(base), "--port", str(port)]
    with (tmp_path / "said").open("wb") as said:
        recording = subprocess.Popen(command, stdout=said, stderr=said, start_new_session=True)
        try:
            while not _answers(f"http://127.0.0.1:{port}/status"):
                assert recording.poll() is None, (tmp_path / "said").read_text()
                time.sleep(0.2)
            # A request that has begun holds the server open, so that the second Ctrl-C finds it ending.
            with socket.create_connection(("127.0.0.1", port)) as client:
                client.sendall(REQUEST_WITHOUT_ITS_BODY)
                assert b"100 Continue" in client.recv(100), "the server waits for the body"
                recording.send_signal(signal.SIGINT)
                while _answers(f"http://127.0.0.1:{port}/status"):
                    time.sleep(0.05)
                recording.send_signal(signal.SIGINT)
                assert recording.wait() == 0
        finally:
            recording.kill()
            recording.wait()
    assert "Traceback" not in (tmp_path / "said").read_text()


def _answers(address: str) -> bool:
    try:
        return httpx.get(address).status_code == 200
    except httpx.ConnectError:
        return False
