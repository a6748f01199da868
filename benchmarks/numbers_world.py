"""The world of `benchmarks.against_trl`, with a reply format and a conversation frame that cost next to nothing.

Its frame has a token for each byte, so a text's length is its number of tokens, with any policy of 259 tokens or more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import ClassVar

import numpy as np

from turnwise.agent.formats import ParsedReply, ThinkAnswerFormat
from turnwise.world import Environment, Limits, Observation, Remaining, Reward, ScriptedAction, Split, Step, Task, World

END, PAD, FIRST_BYTE = 1, 2, 3
"""The token that ends a reply, the one that pads, and the one of byte 0."""


class Numbers(World):
    """Answers every action with a number."""

    name: ClassVar[str] = "numbers"
    version: ClassVar[str] = "1"
    instruction = grammar = ""
    blocks = False
    rewards: ClassVar[Mapping[str, Reward]] = {}

    def __init__(self, turns: int, *, prompt: int = 0, shared: int = 0, observation: int = 0) -> None:
        """Episodes of so many turns. `prompt` is the least number of tokens of an opening, of which the first `shared`
        are the same for all tasks; `observation` is that of an observation.
        """
        self.limits, self._prompt, self._shared, self._observation = Limits(turns), prompt, shared, observation

    def tasks(self, split: Split, count: int) -> list[Task]:
        """The first `count` tasks, which differ in their opening."""
        return [Task(self.name, f"numbers/{number}", split, number) for number in range(count)]

    def make(self, task: Task, seed: int) -> Environment:
        """An episode."""
        return Telling(self, task)

    def opening(self, number: int) -> str:
        """What an episode of the task of this number begins with."""
        return ("." * self._shared + f"task {number}:").ljust(self._prompt)

    def observation_text(self, turn: int) -> str:
        """The observation after a turn, counted from 1: 4 or 5 tokens, or more where the world was told so."""
        return (f"<{turn:02}>" if turn % 2 else f"<{turn:03}>").ljust(self._observation)


class Telling(Environment):
    """One episode of `Numbers`."""

    def __init__(self, world: Numbers, task: Task) -> None:
        self._world, self._task, self._turn = world, task, 0

    def reset(self) -> Observation:
        """The task's opening."""
        return Observation(self._world.opening(self._task.seed))

    def step(self, action: str) -> Step:
        """The number of the turn."""
        self._turn += 1
        return Step(Observation(self._world.observation_text(self._turn)))

    def oracle(self, remaining: Remaining) -> ScriptedAction:
        """Any action."""
        return ScriptedAction("", ("0",))

    def random(self, generator: np.random.Generator, remaining: Remaining) -> ScriptedAction:
        """Any action."""
        return ScriptedAction("", ("0",))


class AnyText(ThinkAnswerFormat):
    """A reply is an action, whatever it says."""

    def read(self, reply: str, actions_per_turn: int) -> ParsedReply:
        """The reply itself."""
        return ParsedReply("", (reply or "nothing",))

    def escape(self, text: str) -> str:
        """The text itself: it has no tags."""
        return text


class Bytes:
    """A conversation without a template: a token per byte. It is a `turnwise.agent.context.ConversationFrame`."""

    end_tokens = (END,)

    def opening(self, system: str | None, observation: str) -> tuple[int, ...]:
        """The bytes of the observation."""
        return _bytes(observation)

    def continuation(self, observation: str, reply: Sequence[int], *, answers_call: bool = False) -> tuple[int, ...]:
        """The bytes of the observation."""
        return self.opening(None, observation)

    def without_thoughts(
        self, system: str | None, observations: Sequence[str], replies: Sequence[tuple[int, ...]]
    ) -> tuple[int, ...]:
        """Never called: replies here have no thoughts."""
        raise AssertionError("replies here have no thoughts")

    def decode(self, tokens: tuple[int, ...]) -> str:
        """The bytes as Latin-1; tokens beyond them begin again with byte 0."""
        return bytes((token - FIRST_BYTE) % 256 for token in tokens if token >= FIRST_BYTE).decode("latin-1")


@lru_cache(4096)
def _bytes(text: str) -> tuple[int, ...]:
    return tuple(byte + FIRST_BYTE for byte in text.encode())
