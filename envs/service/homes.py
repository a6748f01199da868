"""What the service needs of the place where environments live: threads of its own, or processes of their own.

Everything here is awaited on the server's event loop; a world's own code never runs on it.
"""

from __future__ import annotations

from typing import Protocol

from envs.service.schema import Decided, EpisodeQuestion
from turnwise.world import Observation, Step, Task


class WorldFailure(Exception):
    """What a world raised, as it can be told from one process to another."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(f"{kind}: {message}")
        self.kind = kind
        """The name of the exception's class."""
        self.message = message


class WorkerDied(Exception):
    """The process that held the environment has died."""


class LiveEnvironment(Protocol):
    """One environment. Its calls are made one after the other; each raises WorldFailure, or WorkerDied."""

    async def reset(self) -> Observation:
        """See `turnwise.world.Environment`, here and below."""

    async def step(self, action: str) -> Step:
        """The answer, in plain values: see `plain`."""

    async def decide(self, question: EpisodeQuestion) -> Decided:
        """The player's decision, and where the generator stands after it."""

    async def close(self) -> None:
        """Free it, once the call that is under way is done."""


class Home(Protocol):
    """Where the environments of one world live."""

    async def start(self) -> None:
        """Be ready. Raises WorldFailure where the world cannot be made."""

    async def open(self, task: Task, seed: int) -> LiveEnvironment:
        """A new environment. Raises WorldFailure or WorkerDied."""

    async def stop(self) -> None:
        """Let go of everything."""
