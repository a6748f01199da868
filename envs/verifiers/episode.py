"""One rollout of verifiers, turned inside out: it asks, and `step` answers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any

import numpy as np

from envs.verifiers.endpoint import Exchange, Request, Scored, forget, open_exchange
from envs.verifiers.library import Library, in_background
from turnwise.world import Environment, Observation, Remaining, ScriptedAction, Step


class VerifiersFault(Exception):
    """Raised where the environment fails, and not the policy: the episode is missing data."""


class VerifiersEpisode(Environment):
    """One episode. `reset` starts the rollout; it and `step` raise VerifiersFault where the rollout fails."""

    def __init__(self, library: Library, number: int, success_reward: float, solution: str | None) -> None:
        self._library, self._number, self._success_reward = library, number, success_reward
        self._solution = solution
        self._messages_read = 0
        self._end: Scored | None = None
        self._exchange: Exchange | None = None
        self._rollout: Future[None] | None = None

    def reset(self) -> Observation:
        """Start the rollout, and wait for its first request."""
        self._exchange = open_exchange()
        self._rollout = in_background(_play(self._library, self._number, self._exchange))
        message = self._exchange.messages.get()
        if isinstance(message, Scored):
            raise VerifiersFault(f"a rollout must ask its model; this one ended before: {message.failure or message}")
        return Observation(self._news(message) + _listed(message))

    def step(self, action: str) -> Step:
        """Reply to the rollout's request, and wait for its next one or for its end."""
        if self._end is not None:
            return Step(Observation("The episode is over."), terminated=True, valid=False, effective=False)
        assert self._exchange is not None, "the contract says that reset comes first"
        self._exchange.replies.put(action)
        message = self._exchange.messages.get()
        if isinstance(message, Request):
            return Step(Observation(self._news(message)))
        if message.failure:
            raise VerifiersFault(f"a rollout must end with a score; {message.failure}")
        self._end = message
        return Step(
            Observation("The episode is over."),
            {"reward": message.reward},
            terminated=not message.truncated,
            truncated=message.truncated,
            success=message.reward >= self._success_reward,
            metrics=message.metrics,
        )

    def oracle(self, remaining: Remaining) -> ScriptedAction:
        """The field of the task that the world's `solution` names. Raises ValueError without it."""
        if self._solution is None:
            raise ValueError("the oracle needs a field with the solution; the parameter `solution` names none")
        solution = self._library.row(self._number)[self._solution]
        return ScriptedAction("the solution", (solution if isinstance(solution, str) else json.dumps(solution),))

    def random(self, generator: np.random.Generator, remaining: Remaining) -> ScriptedAction:
        """Raises NotImplementedError: replies are free text."""
        raise NotImplementedError("replies are free text, so this world has no random baseline policy")

    def close(self) -> None:
        """End the rollout, scored or not."""
        if self._exchange is not None and self._rollout is not None:
            self._rollout.cancel()
            forget(self._exchange)

    def _news(self, request: Request) -> str:
        """What has been said since the last reply; before the first, everything."""
        new = request.messages[self._messages_read :]
        self._messages_read = len(request.messages) + 1  # the reply will be the next one
        return "\n\n".join(text for text in map(_text, new) if text) or "The environment says nothing."


async def _play(library: Library, number: int, exchange: Exchange) -> None:
    try:
        exchange.messages.put(await library.play(number, exchange))
    except BaseException as error:  # the library ends the process where it misses a login
        exchange.messages.put(Scored(failure=f"{type(error).__name__}: {error}"))


def _text(message: Mapping[str, Any]) -> str:
    content = message.get("content")
    if isinstance(content, str):
        return content
    parts = content or ()
    return "\n".join(str(part.get("text") or f"[{part.get('type')}]") for part in parts)


def _listed(request: Request) -> str:
    """The tools, as far as there are any, a line each."""
    if not request.tools:
        return ""
    lines = [
        f"{tool['function']['name']}[ARGUMENTS]: {tool['function'].get('description') or ''} "
        f"{json.dumps(tool['function'].get('parameters', {}).get('properties', {}))}"
        for tool in request.tools
    ]
    return "\n\nYou have these tools; their arguments are JSON:\n" + "\n".join(lines)
