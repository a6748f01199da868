"""OpenEnv's protocol: a WebSocket for each session, on which its client resets and steps (openenv-core 0.3).

A client is given an address, `/openenv/WORLD/SPLIT`, and opens `/ws` below it. Each message is an object with `type`
and `data`: `reset`, `step`, `state` or `close`. An action and an observation are a `text`; a reward is one number, the
world's rewards of the step with the weights that their authors gave them.

* `reset` may say a `task`, its place in the split, and a `seed`. The same of both is the same episode. A seed without a
  task draws one of the first `DRAWN` tasks of the split, as a seed does in OpenEnv; without either the tasks come in
  turn, in the order in which they are asked for.
* A session is reset as often as its client likes. Every reset makes a fresh episode and frees the one before.
* Further arguments of `reset` are passed over, as OpenEnv's own servers do with what an environment does not take.

What differs from OpenEnv's servers: a failure of the world is an `error` with the service's reason next to OpenEnv's
code, and never an observation or a reward; there are no tools, so the message `mcp` is unknown; and there are no routes
`/reset`, `/step` and `/state`, which make an environment for each request there, and throw it away.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import secrets
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request, WebSocket, WebSocketDisconnect
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from envs.service.episodes import Episodes
from envs.service.limits import client_of
from envs.service.offers import Served, named_world, weighted_reward
from envs.service.reasons import Reason, Refusal
from envs.service.schema import Create, ErrorReply, PlayStep
from turnwise import seeding
from turnwise.world import SPLITS, Split

DRAWN = 1024
"""Tasks of a split of which a seed draws one: the first, as far as there are that many."""

CODES: Mapping[Reason, str] = {
    Reason.TOO_MANY_EPISODES: "CAPACITY_REACHED",
    Reason.INVALID_REQUEST: "VALIDATION_ERROR",
}
"""OpenEnv's codes of the service's reasons; that of all others is `EXECUTION_ERROR`."""


class OpenEnvMessage(BaseModel):
    """What OpenEnv's client sends."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    type: str
    data: dict[str, Any] = Field(default_factory=dict)


class OpenEnvReset(BaseModel):
    """The arguments of a reset that count; others are passed over."""

    model_config = ConfigDict(frozen=True, extra="ignore", use_attribute_docstrings=True)

    task: Annotated[int, Field(ge=0)] | None = None
    """Place of the task in the split, from 0."""
    seed: Annotated[int, Field(ge=0)] | None = None
    """Of the episode's noise; without a task, of the draw of one, too."""
    episode_id: Annotated[str, Field(max_length=255)] | None = None
    """The client's own name for the episode, told again in the state."""


class OpenEnvAction(BaseModel):
    """An action."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    text: str
    """The action, as the world's grammar says."""
    metadata: dict[str, Any] = Field(default_factory=dict)
    """Without effect."""


class OpenEnvObservation(BaseModel):
    """What is seen."""

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)

    text: str
    valid: bool = True
    """Whether the world knows the last action and allowed it."""
    success: bool = False
    """Whether the task is solved."""
    truncated: bool = False
    """Whether a limit of the world's own cut the episode off."""


class OpenEnvState(BaseModel):
    """Where the session stands."""

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)

    episode_id: str | None
    step_count: int
    world: str
    split: Split
    task: str | None
    """The id of the task; null before the first reset."""
    success: bool


class ServedSessions:
    """What the sessions of all clients share: the worlds, the episodes, and whose turn it is among the tasks."""

    def __init__(self, worlds: Mapping[str, Served], episodes: Episodes) -> None:
        self._worlds, self.episodes = worlds, episodes
        self._turns: defaultdict[tuple[str, Split], Iterator[int]] = defaultdict(itertools.count)

    def open(self, world: str, split: str, client: str = "") -> ServedSession:
        """A session of the client at an address, on a split of a world. Raises Refusal if either is unknown."""
        return ServedSession(self, named_world(self._worlds, world), known_split(split), client)

    def metadata(self, world: str) -> dict[str, Any]:
        """What the world is, in OpenEnv's form."""
        description = named_world(self._worlds, world).description
        text = f"{description.facts.instruction}\n{description.facts.grammar}"
        return {"name": description.id, "description": text, "version": description.facts.version}

    def next_place(self, served: Served, split: Split) -> int:
        """The place of the task whose turn it is."""
        return next(self._turns[served.description.id, split]) % drawn_from(served, split)


class ServedSession:
    """One client's session: nothing until its first reset, then an episode."""

    def __init__(self, sessions: ServedSessions, served: Served, split: Split, client: str) -> None:
        self._sessions, self._served, self._split, self._client = sessions, served, split, client
        self._episode: str | None = None
        self._state = OpenEnvState(
            episode_id=None, step_count=0, world=served.description.id, split=split, task=None, success=False
        )

    async def answer(self, raw: str) -> dict[str, Any] | None:
        """The reply to a message, an error included; None for `close`, after which the session is over."""
        try:
            message = OpenEnvMessage.model_validate_json(raw)
            if message.type == "close":
                return None
            if message.type == "reset":
                return await self._reset(OpenEnvReset.model_validate(message.data))
            if message.type == "step":
                return await self._step(OpenEnvAction.model_validate(message.data))
            if message.type == "state":
                return {"type": "state", "data": self._state.model_dump()}
            return error_reply("UNKNOWN_TYPE", f"Unknown message type: {message.type}", Reason.INVALID_REQUEST)
        except ValidationError as error:
            return _invalid(error)
        except Refusal as refusal:
            return refusal_reply(refusal)

    async def close(self) -> None:
        """Free the episode."""
        if self._episode is not None:
            episode, self._episode = self._episode, None
            await self._sessions.episodes.close(episode)

    async def _reset(self, request: OpenEnvReset) -> dict[str, Any]:
        await self.close()
        place = self._place(request)
        (task,) = await self._served.listing.page(self._split, place + 1, place, 1)
        creation = await self._sessions.episodes.create(
            Create(world=self._served.description.id, task=task, seed=request.seed or 0, key=secrets.token_hex(16)),
            self._client,
        )
        self._episode = creation.episode
        text = (await self._sessions.episodes.reset(creation.episode)).observation.text
        start = {
            "episode_id": request.episode_id or creation.episode,
            "step_count": 0,
            "task": task.id,
            "success": False,
        }
        self._state = self._state.model_copy(update=start)
        return _observed(OpenEnvObservation(text=text), None, done=False)

    async def _step(self, action: OpenEnvAction) -> dict[str, Any]:
        if self._episode is None:
            raise Refusal(Reason.RESET_OUT_OF_ORDER, "a session must be reset before its first step")
        number = self._state.step_count + 1
        step = (await self._sessions.episodes.step(self._episode, PlayStep(number=number, action=action.text))).step
        self._state = self._state.model_copy(update={"step_count": number, "success": step.success})
        observation = OpenEnvObservation(
            text=step.observation.text, valid=step.valid, success=step.success, truncated=step.truncated
        )
        return _observed(observation, weighted_reward(step, self._served), done=step.terminated or step.truncated)

    def _place(self, request: OpenEnvReset) -> int:
        if request.task is not None:
            return request.task
        if request.seed is None:
            return self._sessions.next_place(self._served, self._split)
        return seeding.derive(request.seed, "openenv task", self._split) % drawn_from(self._served, self._split)


def drawn_from(served: Served, split: Split) -> int:
    """How many tasks of a split are drawn of. Raises Refusal for a split without tasks."""
    size = served.description.facts.split_sizes[split]
    if size == 0:
        raise Refusal(Reason.TASK_REFUSED, f"the split {split!r} must have tasks; it has none")
    return DRAWN if size is None else min(size, DRAWN)


def known_split(name: str) -> Split:
    """The split of a name. Raises Refusal."""
    for split in SPLITS:
        if split == name:
            return split
    raise Refusal(Reason.UNKNOWN_ROUTE, f"the split must be one of {', '.join(SPLITS)}; found {name!r}")


def error_reply(code: str, message: str, reason: Reason, **more: Any) -> dict[str, Any]:
    """An error in OpenEnv's form, with the service's reason."""
    return {"type": "error", "data": {"message": message, "code": code, "reason": reason.value, **more}}


def refusal_reply(refusal: Refusal) -> dict[str, Any]:
    """A refusal in OpenEnv's form."""
    return error_reply(CODES.get(refusal.reason, "EXECUTION_ERROR"), refusal.message, refusal.reason)


def _invalid(error: ValidationError) -> dict[str, Any]:
    """What is wrong with a message, in OpenEnv's form."""
    errors = error.errors(include_url=False, include_context=False, include_input=False)
    if errors[0]["type"] == "json_invalid":
        return error_reply("INVALID_JSON", f"Invalid JSON: {errors[0]['msg']}", Reason.INVALID_REQUEST)
    return error_reply("VALIDATION_ERROR", "Invalid message", Reason.INVALID_REQUEST, errors=errors)


def _observed(observation: OpenEnvObservation, reward: float | None, *, done: bool) -> dict[str, Any]:
    return {"type": "observation", "data": {"observation": observation.model_dump(), "reward": reward, "done": done}}


MODELS: dict[str, type[BaseModel]] = {
    "action": OpenEnvAction,
    "observation": OpenEnvObservation,
    "state": OpenEnvState,
}
OPENENV_PREFIX = "/openenv/{world}/{split}"

openenv_routes = APIRouter(
    prefix=OPENENV_PREFIX, tags=["OpenEnv"], responses={"4XX": {"model": ErrorReply}, "5XX": {"model": ErrorReply}}
)
"""Sessions live on a WebSocket, of which OpenAPI knows nothing."""


async def _sessions(request: Request) -> ServedSessions:
    sessions: ServedSessions = request.app.state.openenv
    return sessions


Here = Annotated[ServedSessions, Depends(_sessions)]


@openenv_routes.get("/health")
async def health(world: str, split: Split, here: Here) -> dict[str, str]:
    """Whether the world is served."""
    here.open(world, split)
    return {"status": "healthy"}


@openenv_routes.get("/metadata")
async def metadata(world: str, split: Split, here: Here) -> dict[str, Any]:
    """What the world is: its id, its aim and its actions."""
    return here.metadata(world)


@openenv_routes.get("/schema")
async def schema(world: str, split: Split, here: Here) -> dict[str, Any]:
    """The JSON schemas of actions, observations and states."""
    here.open(world, split)
    return {name: model.model_json_schema() for name, model in MODELS.items()}


@openenv_routes.websocket("/ws")
async def session(socket: WebSocket, world: str, split: str) -> None:
    """A session: messages in, replies out, in order. It ends when nothing was asked of it for the length of a lease."""
    sessions: ServedSessions = socket.app.state.openenv
    here = sessions.open(world, split, client_of(socket.scope))  # a refusal is an answer to the handshake
    await socket.accept()
    try:
        while True:
            async with asyncio.timeout(sessions.episodes.lease_seconds):
                message = await _text(socket)
            reply = await here.answer(message)
            if reply is None:
                break
            await socket.send_text(json.dumps(reply))
        await socket.close()
    except TimeoutError:
        await socket.close(1001, "nothing was asked for too long")
    except WebSocketDisconnect:  # most clients end a session so
        pass
    finally:
        await here.close()


elsewhere = APIRouter()
"""To be included last: every address at which no session lives."""


@elsewhere.websocket("/{path:path}")
async def no_session(socket: WebSocket, path: str) -> None:
    """Refuse a session where there is none."""
    raise Refusal(Reason.UNKNOWN_ROUTE, f"no session lives at /{path}: ask /openenv/WORLD/SPLIT/ws for one")


async def _text(socket: WebSocket) -> str:
    """The next message; empty for a binary one, which is no JSON either. Raises WebSocketDisconnect."""
    received = await socket.receive()
    if received["type"] == "websocket.disconnect":
        raise WebSocketDisconnect(received.get("code", 1005))
    return received.get("text") or ""
