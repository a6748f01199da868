"""One episode on an OpenEnv server, in a session of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from envs.openenv.actions import ActionForm, written
from envs.openenv.sessions import OpenEnvFault, OpenEnvSession, PlayReply
from turnwise.world import Environment, Observation, Remaining, ScriptedAction, Step

REFUSED = "VALIDATION_ERROR"
"""The server's code for an action that it does not take: what a policy wrote, and no failure."""
RAISED = "EXECUTION_ERROR"
"""The server's code for an exception in the environment."""
TOOL_FAILURES = ("timeout", "transport_error")
"""Kinds of errors that are the tool's, and not those of who called it."""
NOTHING = "The environment says nothing."


@dataclass(frozen=True)
class Reading:
    """What of a server's replies counts: see `world.OpenEnv`."""

    observation: Sequence[str] | None
    success_reward: float | None
    success_field: str | None
    offers: str | None
    solution: str | None

    def text(self, observation: Mapping[str, Any]) -> str:
        """What the policy reads: what a tool says, or the value of one field, or fields on a line each."""
        if self.observation is None and "tool_name" in observation:
            return _tool_text(observation) or NOTHING
        names = [name for name in self.observation or observation if name in observation]
        if len(names) == 1:
            return written(observation[names[0]]) or NOTHING
        return "\n".join(f"{name}: {written(observation[name])}" for name in names) or NOTHING

    def succeeded(self, played: PlayReply) -> bool:
        """Whether an episode that ended with this reply has solved its task."""
        if self.success_field is not None:
            return bool(played.observation.get(self.success_field))
        return self.success_reward is not None and played.reward >= self.success_reward


class OpenEnvEpisode(Environment):
    """One episode. `reset` opens the session, `close` ends it; both and `step` raise OpenEnvFault."""

    def __init__(
        self,
        session: Callable[[], OpenEnvSession],
        given: Mapping[str, Any],
        form: ActionForm,
        grammar: str,
        reading: Reading,
    ) -> None:
        self._open, self._given, self._form, self._reading = session, given, form, reading
        self._not_one = f"Not an action. {grammar}"
        self._session: OpenEnvSession | None = None
        self._text = ""
        self._offered: tuple[str, ...] | None = None
        self._solution: tuple[str, ...] | None = None
        self._ended = self._success = False

    def reset(self) -> Observation:
        """Open a session, and begin the task."""
        self._session = self._open()
        self._take_in(self._session.reset(self._given))
        return Observation(self._text)

    def step(self, action: str) -> Step:
        """Send an action. What cannot be one, and any after the end, is refused here; the server may refuse others."""
        meant = action.strip()
        sent = None if self._ended else self._form.action(meant)
        if sent is None:
            return self._refuse("The episode is over." if self._ended else self._not_one)
        assert self._session is not None, "the contract says that reset comes first"
        listed = self._offered is None or meant in self._offered
        try:
            played = self._session.step(sent)
        except OpenEnvFault as fault:
            if not self._is_of_the_action(fault, sent, listed):
                raise
            return self._refuse(self._not_one)
        before = self._text
        self._take_in(played)
        acted = self._ended or self._text != before  # some environments act on what they do not list, or end
        return Step(
            Observation(self._text),
            {"reward": played.reward},
            terminated=self._ended,
            valid=(listed or acted) and not ("tool_name" in played.observation and played.observation.get("error")),
            effective=acted,
            success=self._success,
        )

    def oracle(self, remaining: Remaining) -> ScriptedAction:
        """The next action of the environment's own solution. Raises ValueError where it tells none."""
        if not self._solution:
            raise ValueError("the oracle needs the environment's solution; the observation tells none")
        return ScriptedAction(f"{self._solution[0]} is next", (self._solution[0],))

    def random(self, generator: np.random.Generator, remaining: Remaining) -> ScriptedAction:
        """Uniform over the actions that the observation lists, or the schema. Raises ValueError where neither does."""
        offered = self._offered or self._form.choices
        if not offered:
            raise ValueError("the random baseline policy needs a list of actions; the server tells none")
        return ScriptedAction("a random action", (offered[int(generator.integers(len(offered)))],))

    def close(self) -> None:
        """End the session."""
        if self._session is not None:
            self._session.close()

    def _is_of_the_action(self, fault: OpenEnvFault, sent: Mapping[str, Any], listed: bool) -> bool:
        """Whether a server's error says that the policy's action is none, and not that the environment failed.

        The server's check of an action says so. An exception does where the environment listed the possible actions and
        this was none of them: many environments raise at an illegal action.
        """
        if fault.code == REFUSED:
            return fault.fields <= {*sent, *self._form.schema.get("properties", {})}
        return fault.code == RAISED and not listed

    def _take_in(self, played: PlayReply) -> None:
        self._text = self._reading.text(played.observation)
        self._ended = played.done
        self._success = self._ended and self._reading.succeeded(played)
        if not self._ended:
            self._offered = _listed(played.observation, self._reading.offers)
            self._solution = _listed(played.observation, self._reading.solution)

    def _refuse(self, said: str) -> Step:
        return Step(Observation(said), terminated=self._ended, valid=False, effective=False, success=self._success)


def _listed(observation: Mapping[str, Any], field: str | None) -> tuple[str, ...] | None:
    if field is None:
        return None
    found = observation.get(field)
    if not isinstance(found, list):
        raise OpenEnvFault(f"the observation's field {field!r} must be a list of actions; found {found!r}")
    return tuple(map(written, found))


def _tool_text(observation: Mapping[str, Any]) -> str:
    """What a tool said, or why it was not called. Raises OpenEnvFault for a failure that is not the caller's."""
    error, result = observation.get("error"), observation.get("result")
    if isinstance(error, dict):
        if error.get("error_type") in TOOL_FAILURES:
            raise OpenEnvFault(f"a tool must answer; found {error}")
        return str(error.get("message", ""))
    content = result.get("content") if isinstance(result, dict) else None
    if isinstance(content, list):
        return "\n".join(str(part.get("text") or f"[{part.get('type')}]") for part in content)
    return "" if result is None else written(result)
