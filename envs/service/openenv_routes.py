"""The routes of OpenEnv's protocol: see `openenv`. Its sessions live on a WebSocket, of which OpenAPI knows nothing."""

from __future__ import annotations

import asyncio
import json
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request, WebSocket, WebSocketDisconnect
from pydantic import BaseModel

from envs.service.limits import client_of
from envs.service.openenv import OpenEnvAction, OpenEnvObservation, OpenEnvState, ServedSessions
from envs.service.reasons import Reason, Refusal
from envs.service.schema import ErrorReply
from turnwise.world import Split

MODELS: dict[str, type[BaseModel]] = {
    "action": OpenEnvAction,
    "observation": OpenEnvObservation,
    "state": OpenEnvState,
}
OPENENV_PREFIX = "/openenv/{world}/{split}"

openenv_routes = APIRouter(
    prefix=OPENENV_PREFIX, tags=["OpenEnv"], responses={"4XX": {"model": ErrorReply}, "5XX": {"model": ErrorReply}}
)


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
