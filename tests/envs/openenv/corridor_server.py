"""A server that speaks OpenEnv's protocol as openenv-core 0.3.0 does, without its package: a corridor to walk.

Its messages are what that package's server sends for an environment with these fields: `test_openenv_package.py` holds
it to that.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI, WebSocket, WebSocketDisconnect

CELLS = 5
METADATA = {"name": "Corridor", "description": "Walk to the last cell.", "version": "1.0.0"}
SCHEMA: dict[str, Any] = {
    "action": {
        "properties": {"metadata": {"type": "object"}, "move": {"type": "integer", "description": "where to go"}},
        "required": ["move"],
    },
    "observation": {
        "properties": {
            "done": {"type": "boolean"},
            "reward": {"type": "number"},
            "metadata": {"type": "object"},
            "message": {"type": "string"},
            "legal_actions": {"type": "array"},
            "rest": {"type": "array"},
            "arrived": {"type": "boolean"},
        }
    },
    "state": {"properties": {}},
}


class Corridor:
    """A walk from a cell that the seed draws to the last one. Raises at a move that is not legal.

    With a trap the first cell offers a move at which the environment fails.
    """

    def __init__(self, trap: bool = False) -> None:
        self.cell, self.trap = 0, trap

    def reset(self, seed: int = 0) -> dict[str, Any]:
        self.cell = 1 + seed % (CELLS - 2)
        return self.seen(0.0)

    def step(self, move: int) -> dict[str, Any]:
        if move == 500:
            raise OSError("the corridor is gone")
        if move not in self.legal:
            raise ValueError(f"{move} is not a valid move")
        self.cell += move
        return self.seen(1.0 if self.cell == CELLS - 1 else -0.1)

    @property
    def legal(self) -> list[int]:
        return [move for move in (-1, 1) if 0 <= self.cell + move < CELLS] + [500] * (self.trap and self.cell == 0)

    def seen(self, reward: float) -> dict[str, Any]:
        fields = {
            "message": f"cell {self.cell} of {CELLS - 1}",
            "legal_actions": self.legal,
            "rest": [1] * (CELLS - 1 - self.cell),
            "arrived": self.cell == CELLS - 1,
        }
        return {"observation": fields, "reward": reward, "done": self.cell == CELLS - 1}


class CorridorServer:
    """The server, and every message that it received."""

    def __init__(self, most_sessions: int = 1000, trap: bool = False) -> None:
        self.received: list[Mapping[str, Any]] = []
        self.headers: list[Mapping[str, str]] = []
        self.open = 0
        self.most_sessions, self.trap = most_sessions, trap
        self.app = FastAPI()
        self.app.get("/metadata")(lambda: METADATA)
        self.app.get("/schema")(lambda: SCHEMA)
        self.app.websocket("/ws")(self.session)

    async def session(self, socket: WebSocket) -> None:
        await socket.accept()
        self.headers.append(dict(socket.headers))
        if self.open >= self.most_sessions:
            await socket.send_text(error("CAPACITY_REACHED", f"Server at capacity: {self.open}/{self.most_sessions}"))
            return await socket.close()
        self.open += 1
        try:
            await self.converse(socket, Corridor(self.trap))
        except WebSocketDisconnect:
            pass
        finally:
            await asyncio.sleep(0.01)  # to free a session takes the package's server a moment, too
            self.open -= 1
            with contextlib.suppress(RuntimeError):
                await socket.close()

    async def converse(self, socket: WebSocket, corridor: Corridor) -> None:
        while (message := json.loads(await socket.receive_text()))["type"] != "close":
            self.received.append(message)
            await socket.send_text(answer(message, corridor))


def answer(message: Mapping[str, Any], corridor: Corridor) -> str:
    data = message["data"]
    if message["type"] == "reset":
        return json.dumps({"type": "observation", "data": corridor.reset(data.get("seed", 0))})
    move = data.get("move")
    if set(data) != {"move"} or not isinstance(move, int):
        wrong = {"type": "int_parsing", "loc": ["move"], "msg": "Input should be a valid integer"}
        return error("VALIDATION_ERROR", "Invalid message", errors=[wrong])
    try:
        return json.dumps({"type": "observation", "data": corridor.step(move)})
    except Exception as problem:
        return error("EXECUTION_ERROR", str(problem))


def error(code: str, message: str, **more: Any) -> str:
    return json.dumps({"type": "error", "data": {"message": message, "code": code, **more}})
