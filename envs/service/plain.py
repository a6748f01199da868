"""A world's replies as JSON can hold them: texts that UTF-8 can encode. `ValidatedEnvironment` has seen to the numbers.

Web pages, read through JSON, can have lone surrogates. The agent replaces them when it stores a text, in the same way
as here, so no trajectory shows whether its world was remote.
"""

from __future__ import annotations

from dataclasses import replace

from turnwise.world import Observation, ScriptedAction, Step


def plain_text(text: str) -> str:
    """The text with each lone surrogate replaced by a question mark."""
    return text.encode("utf-8", "replace").decode("utf-8")


def plain_observation(observation: Observation) -> Observation:
    """Observation as JSON can hold it."""
    state = observation.state
    return Observation(plain_text(observation.text), None if state is None else plain_text(state))


def plain_step(step: Step) -> Step:
    """Step as JSON can hold it."""
    return replace(step, observation=plain_observation(step.observation))


def plain_decision(decision: ScriptedAction) -> ScriptedAction:
    """Scripted action as JSON can hold it."""
    return ScriptedAction(plain_text(decision.thought), tuple(plain_text(action) for action in decision.actions))
