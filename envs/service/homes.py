"""Interface of the place where environments live: threads of the server, or processes of their own.

Everything here is awaited on the server's event loop; a world's own code never runs on it.
"""

from __future__ import annotations

from typing import Protocol

from envs.service.schema import Decided, EpisodeQuestion
from turnwise.world import Observation, Step, Task


class WorldFailure(Exception):
    """An exception of a world, in a form that can be sent between processes."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(f"{kind}: {message}")
        self.kind = kind
        """Name of the exception's class."""
        self.message = message


class WorkerDied(Exception):
    """Raised when the process that held the environment has died."""


class LiveEnvironment(Protocol):
    """One environment. Its calls are made one after the other; each raises WorldFailure or WorkerDied."""

    async def reset(self) -> Observation:
        """First observation: see `turnwise.world.Environment`, also for the methods below."""

    async def step(self, action: str) -> Step:
        """Result of an action, in plain values: see `plain`."""

    async def decide(self, question: EpisodeQuestion) -> Decided:
        """Action of a baseline policy, and the state of its generator afterwards."""

    async def close(self) -> None:
        """Free the environment once the current call is done."""


class Home(Protocol):
    """The place where the environments of one world live."""

    async def start(self) -> None:
        """Get ready. Raises WorldFailure if the world cannot be made."""

    async def open(self, task: Task, seed: int) -> LiveEnvironment:
        """A new environment. Raises WorldFailure or WorkerDied."""

    async def stop(self) -> None:
        """Free everything."""
