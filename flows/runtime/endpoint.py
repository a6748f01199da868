"""`turnwise record`: OpenAI's chat completions for an outside agent, and a reward for each of its episodes.

POST /GROUP/EPISODE/v1/chat/completions    an agent whose base URL is http://127.0.0.1:PORT/GROUP/EPISODE/v1
GET  /GROUP/EPISODE/v1/models
POST /GROUP/EPISODE/reward                 {"reward": 1.0} or {"rewards": {NAME: NUMBER}, "turns": [{NAME: NUMBER}]}
POST /rollout                              writes the episodes so far into the store, and begins anew
GET  /status
"""

from __future__ import annotations

import json
import logging
import socket
import threading
from asyncio import CancelledError
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, StreamingResponse
from starlette.middleware import Middleware

from envs.service.guards import Authorisation, BodyLimit, OwnHost, OwnOrigin, require_safe
from tasks.restoring import MODELS
from turnwise import seeding
from turnwise.agent.outside_agent import ConversationFrame, RecordedEpisode, Recorder, Refused, trajectories_of_episodes
from turnwise.config.model_settings import EngineName
from turnwise.data.metrics import episode_means
from turnwise.data.trajectory_files import write_trajectories
from turnwise.policy.engines.contract import Engine, Sampling
from turnwise.policy.engines.resident import make_engine
from turnwise.policy.engines.sampling_thread import SamplingThread
from turnwise.policy.tokenizer import generation_end_tokens, load_tokenizer
from turnwise.store import Reference, default_store

MOST_BYTES, SLOWEST_SECONDS = 16_000_000, 60.0


@dataclass(frozen=True)
class AnsweringPolicy:
    """The policy that answers."""

    name: str
    reference: Reference
    """Its artifact, which an update of it begins with."""
    tokenizer: Path
    """The folder of its tokenizer."""


@dataclass(frozen=True)
class RecordSettings:
    """How replies are sampled."""

    engine: EngineName
    device: str
    threads: int
    context_tokens: int
    reply_tokens: int
    temperature: float
    seed: int
    at_once: int


class Recording(AbstractContextManager["Recording"]):
    """An engine with the policy, and what is recorded of its conversations, within a block."""

    def __init__(
        self, policy: AnsweringPolicy, settings: RecordSettings, on_write: Callable[[dict[str, Any]], None]
    ) -> None:
        """`on_write` is told of each rollout that was written into the store."""
        self._policy, self._settings, self._on_write = policy, settings, on_write
        self._tokenizer = load_tokenizer(policy.tokenizer)
        self._end_tokens = generation_end_tokens(policy.tokenizer)
        plain = self._frame("[]")
        self._sampling = SamplingThread(lambda: self._engine(plain.end_tokens))
        self.recorder = Recorder(self._sampling, cache(self._frame), settings.temperature, self._write, policy.name)

    def __exit__(self, *_: object) -> None:
        """Write what is not written yet, and end the engine."""
        if self.recorder.status["episodes"]:
            self.recorder.write()
        self._sampling.close()

    def wait_until_ready(self) -> None:
        """Wait for the engine. Raises what making it raised."""
        _ = self._sampling.context_length

    @property
    def policy(self) -> Reference:
        """The policy that answers."""
        return self._policy.reference

    @contextmanager
    def serving(self, host: str = "127.0.0.1", port: int = 0, token: str | None = None) -> Iterator[str]:
        """Answer on a thread while the block runs; the address. Port 0: any that is free."""
        import uvicorn

        require_safe(host, token)
        self.wait_until_ready()
        listening = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
        app = create_application(self.recorder, host, token)
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning", access_log=False))
        thread = threading.Thread(target=server.run, args=([listening],), name="endpoint", daemon=True)
        thread.start()
        try:
            yield address_at(host, listening.getsockname()[1])
        finally:
            server.should_exit = True
            thread.join()

    def serve(self, host: str, port: int, token: str | None) -> None:
        """Answer until the process receives a signal to end."""
        import uvicorn

        app = create_application(self.recorder, host, token)
        logging.getLogger("uvicorn.error").addFilter(_is_no_cancelled_request)
        uvicorn.run(app, host=host, port=port, log_level="warning", access_log=False, lifespan="off")

    def _frame(self, tools: str) -> ConversationFrame:
        return ConversationFrame(self._tokenizer, self._end_tokens, json.loads(tools))

    def _engine(self, end_tokens: tuple[int, ...]) -> Engine:
        settings = self._settings
        engine = make_engine(
            settings.engine,
            device=settings.device,
            threads=settings.threads,
            context_length=settings.context_tokens,
            maximum_episodes=settings.at_once,
        )
        with MODELS.whole_policy(self._policy.reference) as folder:
            engine.load(folder, self._policy.reference.digest)
        engine.begin(
            seeding.derive(settings.seed, "record"),
            Sampling(temperature=settings.temperature, max_reply_tokens=settings.reply_tokens, end_tokens=end_tokens),
        )
        return engine

    def _write(self, episodes: Sequence[RecordedEpisode]) -> dict[str, Any]:
        trajectories, lost_episodes = trajectories_of_episodes(episodes)
        with default_store().write("rollout") as draft:
            write_trajectories(draft.folder, trajectories, lost_episodes)
            draft.metrics.update(
                episode_means(trajectories, len(lost_episodes)) if trajectories else {},
                lost_episodes=len(lost_episodes),
            )
        summary = {
            "rollout": str(draft.reference),
            "episodes": len(trajectories),
            "lost": len(lost_episodes),
            "policy": str(self._policy.reference),
        }
        self._on_write(summary)
        return summary


def address_at(host: str, port: int) -> str:
    """The address of a server; a host that is an IPv6 address stands in brackets."""
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def create_application(recorder: Recorder, host: str, token: str | None) -> FastAPI:
    """The application. `token`: what clients send as their API key."""
    app = FastAPI(
        title="turnwise record",
        openapi_url=None,
        middleware=[
            Middleware(OwnHost, host=host, others=()),
            Middleware(OwnOrigin),
            Middleware(Authorisation, token=token),
            Middleware(BodyLimit, most_bytes=MOST_BYTES, seconds=SLOWEST_SECONDS),
        ],
    )

    @app.exception_handler(Refused)
    def refuse(_: Request, error: Refused) -> JSONResponse:
        fault = {"message": str(error), "type": "invalid_request_error", "param": None, "code": None}
        return JSONResponse({"error": fault}, error.status)

    @app.post("/{group}/{episode}/v1/chat/completions", response_model=None)
    def chat(group: str, episode: str, request: dict[str, Any]) -> StreamingResponse | dict[str, Any]:
        answer = recorder.complete(group, episode, request)
        return StreamingResponse(_stream(answer), media_type="text/event-stream") if request.get("stream") else answer

    @app.get("/{group}/{episode}/v1/models")
    def models(group: str, episode: str) -> dict[str, Any]:
        return {"object": "list", "data": [{"id": recorder.status["model"], "object": "model", "owned_by": "turnwise"}]}

    @app.post("/{group}/{episode}/reward")
    def reward(group: str, episode: str, posted: dict[str, Any]) -> dict[str, Any]:
        return recorder.reward(group, episode, posted)

    @app.post("/rollout")
    def rollout() -> dict[str, Any]:
        return recorder.write()

    @app.get("/status")
    def status() -> dict[str, Any]:
        return recorder.status

    return app


def _is_no_cancelled_request(record: logging.LogRecord) -> bool:
    """Whether to log it: a second Ctrl-C cancels the requests that are open, which is no fault."""
    return record.exc_info is None or not isinstance(record.exc_info[1], CancelledError)


def _stream(answer: Mapping[str, Any]) -> Iterator[str]:
    """An answer as the events of a stream: the reply in one piece, how it ended, and the end."""
    (choice,) = answer["choices"]
    delta = dict(choice["message"])
    if "tool_calls" in delta:
        delta["tool_calls"] = [{"index": place, **call} for place, call in enumerate(delta["tool_calls"])]
    about = {**{key: answer[key] for key in ("id", "created", "model")}, "object": "chat.completion.chunk"}
    for part, finish in ((delta, None), ({}, choice["finish_reason"])):
        event = {**about, "choices": [{"index": 0, "delta": part, "finish_reason": finish}]}
        yield f"data: {json.dumps(event, ensure_ascii=False)}\n\n"
    yield "data: [DONE]\n\n"
