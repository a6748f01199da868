"""A world's replies as JSON can hold them: Python's own numbers, finite, and texts that UTF-8 can encode.

Web pages, read through JSON, can have lone surrogates. The agent replaces them when it stores a text, in the same way
as here, so no trajectory shows whether its world was remote.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from turnwise.world import Observation, ScriptedAction, Step


def plain_text(text: str) -> str:
    """The text with each lone surrogate replaced by a question mark."""
    return text.encode("utf-8", "replace").decode("utf-8")


def plain_observation(observation: Observation) -> Observation:
    """Observation as JSON can hold it."""
    state = observation.state
    return Observation(plain_text(observation.text), None if state is None else plain_text(state))


def plain_step(step: Step) -> Step:
    """Step as JSON can hold it. Raises ValueError for a reward or metric that is not finite."""
    return Step(
        observation=plain_observation(step.observation),
        rewards=_finite(step.rewards),
        terminated=bool(step.terminated),
        truncated=bool(step.truncated),
        valid=bool(step.valid),
        effective=bool(step.effective),
        success=bool(step.success),
        metrics=_finite(step.metrics),
    )


def plain_decision(decision: ScriptedAction) -> ScriptedAction:
    """Scripted action as JSON can hold it."""
    return ScriptedAction(plain_text(decision.thought), tuple(plain_text(action) for action in decision.actions))


def _finite(values: Mapping[str, float]) -> dict[str, float]:
    found = {name: float(value) for name, value in values.items()}
    for name, value in found.items():
        if not math.isfinite(value):
            raise ValueError(f"a reward or metric must be a finite number; found {name} = {value}")
    return found
