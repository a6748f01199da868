"""The endpoint of `turnwise record`: OpenAI's chat completions, and a reward for each episode.

    POST /GROUP/EPISODE/v1/chat/completions    an agent whose base URL is http://127.0.0.1:PORT/GROUP/EPISODE/v1
    GET  /GROUP/EPISODE/v1/models
    POST /GROUP/EPISODE/reward                 {"reward": 1.0} or {"rewards": {NAME: NUMBER}, "turns": [{NAME: NUMBER}]}
    POST /rollout                              writes the episodes so far into the store, and begins anew
    GET  /status

A group is a task: its episodes are compared with one another. An episode is named once and is over with its reward.
"""

from __future__ import annotations

import json
import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, StreamingResponse
from starlette.middleware import Middleware

from envs.service.guards import Authorisation, BodyLimit, OwnHost, OwnOrigin
from flows.endpoint.sampling_thread import SamplingThread
from turnwise.agent.outside_agent import ConversationFrame, RecordedEpisode, answer_of
from turnwise.errors import ConfigurationError

MOST_BYTES, SLOWEST_SECONDS = 16_000_000, 60.0
NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    "n": (1,),
    "top_p": (1, 1.0),
    "frequency_penalty": (0, 0.0),
    "presence_penalty": (0, 0.0),
    "tool_choice": ("auto",),
    "parallel_tool_calls": (True, False),
    "response_format": ({"type": "text"},),
    "logit_bias": ({},),
    "stop": ([],),
}
"""Keys of a request that would change what is sampled, with the values that do not."""
READ = {"messages", "model", "max_tokens", "max_completion_tokens", "stream", "tools", "temperature", "logprobs"}
IGNORED = {"user", "metadata", "stream_options", "store", "seed", "top_logprobs", "service_tier", "safety_identifier"}
"""Keys that change nothing of what is sampled. A seed is the server's: replies depend on what else is in flight."""


class Refused(Exception):
    """A request that is wrong: a status and what must hold."""

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


class Recorder:
    """The episodes that are recorded, and the policy that answers in them."""

    def __init__(
        self,
        sampling: SamplingThread,
        frame: Callable[[str], ConversationFrame],
        temperature: float,
        write: Callable[[Sequence[RecordedEpisode]], dict[str, Any]],
        model: str,
    ) -> None:
        """`frame` makes a frame for tools as JSON; `write` keeps episodes, and returns what it tells of them."""
        self._sampling, self._frame, self._temperature, self._write = sampling, frame, temperature, write
        self._model = model
        self._episodes: dict[tuple[str, str], RecordedEpisode] = {}
        self._locks: dict[tuple[str, str], threading.Lock] = {}
        self._all = threading.Lock()

    def complete(self, group: str, name: str, request: Mapping[str, Any]) -> dict[str, Any]:
        """Answer a request of an episode, and record both."""
        self._require_plain(request)
        messages, tools = request.get("messages"), request.get("tools") or []
        if (
            not isinstance(messages, list)
            or not messages
            or not all(isinstance(m, dict) and "role" in m for m in messages)
        ):
            raise Refused("messages must be a list of messages with roles, and not empty")
        episode, lock = self._episode(group, name)
        frame = self._frame(json.dumps(tools, sort_keys=True))
        limit = request.get("max_completion_tokens") or request.get("max_tokens")
        try:
            with lock:
                context, parent, observation = episode.context(messages, frame)
            reply = self._sampling.sample(context, limit).result()
        except (ConfigurationError, ValueError) as error:
            raise Refused(str(error)) from error
        text = frame.decode(reply.tokens)
        with lock:
            if episode.rewards is not None:
                raise Refused(f"the episode {group}/{name} has its reward and is over", 409)
            answer = answer_of(text, bool(tools), len(episode.calls))
            episode.add(messages, context, parent, observation, reply, text, answer)
            episode.truncated = not reply.complete
        finish = "length" if not reply.complete else "tool_calls" if answer.get("tool_calls") else "stop"
        spelled: list[dict[str, Any]] = [
            {"token": frame.decode([token]), "logprob": value, "bytes": None, "top_logprobs": []}
            for token, value in zip(reply.tokens, reply.log_probabilities, strict=True)
        ]
        return {
            "id": f"chatcmpl-{group}-{name}-{len(episode.calls)}",
            "object": "chat.completion",
            "created": int(time.time()),
            "model": self._model,
            "choices": [
                {
                    "index": 0,
                    "message": answer,
                    "finish_reason": finish,
                    "logprobs": {"content": spelled} if request.get("logprobs") else None,
                }
            ],
            "usage": {
                "prompt_tokens": len(context),
                "completion_tokens": len(reply.tokens),
                "total_tokens": len(context) + len(reply.tokens),
            },
        }

    def reward(self, group: str, name: str, posted: Mapping[str, Any]) -> dict[str, Any]:
        """End an episode with its rewards."""
        if unread := posted.keys() - {"reward", "rewards", "turns"}:
            raise Refused(f"a reward has the keys reward, or rewards and turns; found {', '.join(sorted(unread))}")
        rewards = {"reward": posted["reward"]} if "reward" in posted else dict(posted.get("rewards") or {})
        turns = [dict(each) for each in posted.get("turns") or []]
        for where, value in [item for each in (rewards, *turns) for item in each.items()]:
            if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
                raise Refused(f"a reward must be a finite number; {where} is {value!r}")
        if not rewards and not turns:
            raise Refused("an episode must get a reward: post reward, or rewards by name")
        with self._all:
            episode = self._episodes.get((group, name))
            if episode is None or not episode.calls:
                raise Refused(f"an episode must have asked for a reply; {group}/{name} has not", 404)
            if episode.rewards is not None:
                raise Refused(f"an episode gets its reward once; {group}/{name} has it", 409)
            if turns and len(turns) != len(episode.calls):
                raise Refused(f"turns must have one entry per reply, {len(episode.calls)}; found {len(turns)}")
            episode.rewards, episode.of_turns = {key: float(value) for key, value in rewards.items()}, turns
        return {"group": group, "episode": name, "turns": len(episode.calls), "rewards": episode.rewards}

    def write(self) -> dict[str, Any]:
        """Keep the episodes so far, and begin anew."""
        with self._all:
            episodes, self._episodes, self._locks = list(self._episodes.values()), {}, {}
        return self._write(episodes)

    @property
    def status(self) -> dict[str, Any]:
        """What is recorded and not yet written."""
        episodes = list(self._episodes.values())
        return {
            "model": self._model,
            "episodes": len(episodes),
            "rewarded": sum(each.rewards is not None for each in episodes),
            "turns": sum(len(each.calls) for each in episodes),
        }

    def _episode(self, group: str, name: str) -> tuple[RecordedEpisode, threading.Lock]:
        with self._all:
            episode = self._episodes.setdefault((group, name), RecordedEpisode(group, name))
            lock = self._locks.setdefault((group, name), threading.Lock())
        if episode.rewards is not None:
            raise Refused(f"the episode {group}/{name} has its reward and is over: give the next one another name", 409)
        return episode, lock

    def _require_plain(self, request: Mapping[str, Any]) -> None:
        """Raise Refused for a request that asks for another distribution than the one that is recorded."""
        if (asked := request.get("temperature")) not in (None, self._temperature):
            raise Refused(
                f"temperature must be left out, or {self._temperature:g}, at which all is sampled; found {asked}: "
                "start the server with --temperature"
            )
        for key, value in request.items():
            if key in READ or key in IGNORED or value is None:
                continue
            if value not in NEUTRAL.get(key, ()):
                raise Refused(
                    f"{key} must be left out: replies are sampled from the policy's own distribution, since that is "
                    f"what is learned from; found {json.dumps(value)[:80]}"
                )


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
        return StreamingResponse(_streamed(answer), media_type="text/event-stream") if request.get("stream") else answer

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


def _streamed(answer: Mapping[str, Any]) -> Iterator[str]:
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
