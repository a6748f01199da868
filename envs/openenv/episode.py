"""One episode on an OpenEnv server, in a session of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from envs.openenv.actions import ActionForm, as_text
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
            return as_text(observation[names[0]]) or NOTHING
        return "\n".join(f"{name}: {as_text(observation[name])}" for name in names) or NOTHING

    def succeeded(self, reply: PlayReply) -> bool:
        """Whether an episode that ended with this reply has solved its task."""
        if self.success_field is not None:
            return bool(reply.observation.get(self.success_field))
        return self.success_reward is not None and reply.reward >= self.success_reward


class OpenEnvEpisode(Environment):
    """One episode. `reset` opens the session, `close` ends it; both and `step` raise OpenEnvFault."""

    def __init__(
        self,
        session: Callable[[], OpenEnvSession],
        reset_arguments: Mapping[str, Any],
        form: ActionForm,
        grammar: str,
        reading: Reading,
    ) -> None:
        self._open, self._reset_arguments, self._form, self._reading = session, reset_arguments, form, reading
        self._not_one = f"Not an action. {grammar}"
        self._session: OpenEnvSession | None = None
        self._text = ""
        self._offers: tuple[str, ...] | None = None
        self._solution: tuple[str, ...] | None = None
        self._ended = self._success = False

    def reset(self) -> Observation:
        """Open a session, and begin the task."""
        self._session = self._open()
        self._take_in(self._session.reset(self._reset_arguments))
        return Observation(self._text)

    def step(self, action: str) -> Step:
        """Send an action. What cannot be one, and any after the end, is refused here; the server may refuse others."""
        action_text = action.strip()
        request = None if self._ended else self._form.action(action_text)
        if request is None:
            return self._refuse("The episode is over." if self._ended else self._not_one)
        assert self._session is not None, "the contract says that reset comes first"
        is_listed = self._offers is None or action_text in self._offers
        try:
            reply = self._session.step(request)
        except OpenEnvFault as fault:
            if not self._is_of_the_action(fault, request, is_listed):
                raise
            return self._refuse(self._not_one)
        before = self._text
        self._take_in(reply)
        effective = self._ended or self._text != before  # some environments act on what they do not list, or end
        return Step(
            Observation(self._text),
            {"reward": reply.reward},
            terminated=self._ended,
            valid=(is_listed or effective)
            and not ("tool_name" in reply.observation and reply.observation.get("error")),
            effective=effective,
            success=self._success,
        )

    def oracle(self, remaining: Remaining) -> ScriptedAction:
        """The next action of the environment's own solution. Raises ValueError where it tells none."""
        if not self._solution:
            raise ValueError("the oracle needs the environment's solution; the observation tells none")
        return ScriptedAction(f"{self._solution[0]} is next", (self._solution[0],))

    def random(self, generator: np.random.Generator, remaining: Remaining) -> ScriptedAction:
        """Uniform over the actions that the observation lists, or the schema. Raises ValueError where neither does."""
        actions = self._offers or self._form.choices
        if not actions:
            raise ValueError("the random baseline policy needs a list of actions; the server tells none")
        return ScriptedAction("a random action", (actions[int(generator.integers(len(actions)))],))

    def close(self) -> None:
        """End the session."""
        if self._session is not None:
            self._session.close()

    def _is_of_the_action(self, fault: OpenEnvFault, request: Mapping[str, Any], is_listed: bool) -> bool:
        """Whether a server's error says that the policy's action is none, and not that the environment failed.

        The server's check of an action says so. An exception does where the environment listed the possible actions and
        this was none of them: many environments raise at an illegal action.
        """
        if fault.code == REFUSED:
            return fault.fields <= {*request, *self._form.schema.get("properties", {})}
        return fault.code == RAISED and not is_listed

    def _take_in(self, reply: PlayReply) -> None:
        self._text = self._reading.text(reply.observation)
        self._ended = reply.done
        self._success = self._ended and self._reading.succeeded(reply)
        if not self._ended:
            self._offers = _read_actions(reply.observation, self._reading.offers)
            self._solution = _read_actions(reply.observation, self._reading.solution)

    def _refuse(self, message: str) -> Step:
        return Step(Observation(message), terminated=self._ended, valid=False, effective=False, success=self._success)


def _read_actions(observation: Mapping[str, Any], field: str | None) -> tuple[str, ...] | None:
    if field is None:
        return None
    actions = observation.get(field)
    if not isinstance(actions, list):
        raise OpenEnvFault(f"the observation's field {field!r} must be a list of actions; found {actions!r}")
    return tuple(map(as_text, actions))


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
    return "" if result is None else as_text(result)
