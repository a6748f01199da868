"""What worlds answer, held against the contract: the one place where rewards, metrics and observations are validated.

`ValidatedEnvironment` wraps an environment, whatever made it: a world of one's own, a Gymnasium environment, a part of
a mixture, a remote service. The agent's host, the server and the checker play through it, so they agree.

A number is anything that stands for exactly one: Python's int, float, bool and Fraction, NumPy's scalars, and arrays
and tensors without axes (shape `()`), of any library. It must be finite, also in the learner's 32 bits, and becomes a
Python float. None, text, bytes, complex numbers, and arrays with an axis, also of one element, are not numbers. A flag
is a bool of Python or NumPy.

An answer that breaks the contract is a mistake in the world's code and no missing data: it is refused (`ContractError`)
and not tried again, since episodes that are left out for what they answered would bias what is left.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from numbers import Real
from typing import Any

import numpy as np

from turnwise.errors import ContractError
from turnwise.world.contract import Environment, Observation, Remaining, ScriptedAction, Step, Task

LONGEST_QUOTE = 80
LARGEST = float(np.finfo(np.float32).max)
"""The largest magnitude of a number: sums and squares of such are finite in 64 bits, and the learner has 32."""
FLAGS = ("terminated", "truncated", "valid", "effective", "success")


def finite_number(what: str, value: object, advice: str = "") -> float:
    """The value as a float. `what` names it in the message, e.g. `reward goal of tool/1/train/3`.

    Raises ContractError for what is no number, not finite, or above `LARGEST`; the message ends with `advice`.
    """
    number = as_number(value)
    if number is None:
        raise ContractError(f"{what} must be a number; found {quoted(value)}{advice}", "TW-answer-type")
    if not math.isfinite(number):
        raise ContractError(f"{what} must be a finite number; found {number}{advice}", "TW-not-finite")
    if abs(number) > LARGEST:
        raise ContractError(
            f"{what} must be at most {LARGEST:.2g} in magnitude, as 32 bits hold; found {number}: scale it",
            "TW-not-finite",
        )
    return number


def as_number(value: object) -> float | None:
    """The value as a float, also one that is not finite; None where it is not exactly one real number."""
    if type(value) is float:
        return value
    if getattr(value, "shape", None) == () and hasattr(value, "item"):
        value = value.item()  # NumPy's scalars, and arrays and tensors without axes
    if not isinstance(value, Real):
        return None
    try:
        return float(value)
    except OverflowError:  # an int of more than 308 digits, which is refused like infinity
        return math.inf


def valid_observation(observation: object, task: Task) -> Observation:
    """The observation. Raises ContractError unless it is one, with a text, and with a state that is a text or None."""
    if not isinstance(observation, Observation):
        raise ContractError(
            f"the observation of {task.id} must be an Observation; found {quoted(observation)}", "TW-answer-type"
        )
    _require_text(f"the observation's text of {task.id}", observation.text)
    if observation.state is not None:
        _require_text(f"the observation's state of {task.id}", observation.state, " or None")
    return observation


def valid_step(step: object, task: Task) -> Step:
    """The step with Python's own numbers and flags. Raises ContractError where it breaks the contract."""
    if not isinstance(step, Step):
        raise ContractError(f"step of {task.id} must return a Step; found {quoted(step)}", "TW-answer-type")
    valid_observation(step.observation, task)
    changes: dict[str, Any] = {
        name: values
        for name, kind in (("rewards", "reward"), ("metrics", "metric"))
        if (values := _numbers(kind, getattr(step, name), task)) is not getattr(step, name)
    }
    for name in FLAGS:
        flag = getattr(step, name)
        if type(flag) is not bool:
            if not isinstance(flag, np.bool_):
                raise ContractError(
                    f"{name} of {task.id} must be True or False; found {quoted(flag)}", "TW-answer-type"
                )
            changes[name] = bool(flag)
    return dataclasses.replace(step, **changes) if changes else step


def valid_action(action: object, task: Task) -> ScriptedAction:
    """A baseline policy's action. Raises ContractError unless it is one, of texts."""
    if not isinstance(action, ScriptedAction):
        raise ContractError(
            f"a baseline policy of {task.id} must return a ScriptedAction; found {quoted(action)}", "TW-answer-type"
        )
    _require_text(f"the thought of a baseline policy of {task.id}", action.thought)
    if not isinstance(action.actions, tuple | list):
        raise ContractError(
            f"the actions of a baseline policy of {task.id} must be a tuple of texts; found {quoted(action.actions)}",
            "TW-answer-type",
        )
    for each in action.actions:
        _require_text(f"an action of a baseline policy of {task.id}", each)
    return action


def quoted(value: object) -> str:
    """The value as a message quotes it: its `repr`, cut where it is long."""
    text = " ".join(repr(value).split())
    return text if len(text) <= LONGEST_QUOTE else f"{text[:LONGEST_QUOTE]}... ({type(value).__name__})"


class ValidatedEnvironment(Environment):
    """An environment whose answers are validated. Every method raises ContractError where one breaks the contract."""

    def __init__(self, environment: Environment, task: Task) -> None:
        if not isinstance(environment, Environment):
            raise ContractError(
                f"make of {task.id} must return an Environment; found {quoted(environment)}", "TW-answer-type"
            )
        self._environment, self._task = environment, task

    def reset(self) -> Observation:
        """The first observation."""
        return valid_observation(self._environment.reset(), self._task)

    def step(self, action: str) -> Step:
        """The world's answer to one action, with Python's own numbers and flags."""
        return valid_step(self._environment.step(action), self._task)

    def oracle(self, remaining: Remaining) -> ScriptedAction:
        """The oracle's action."""
        return valid_action(self._environment.oracle(remaining), self._task)

    def random(self, generator: np.random.Generator, remaining: Remaining) -> ScriptedAction:
        """The random baseline policy's action."""
        return valid_action(self._environment.random(generator, remaining), self._task)

    def decide(self, baseline: str, generator: np.random.Generator, remaining: Remaining) -> ScriptedAction:
        """The action of the baseline policy of this name."""
        return valid_action(self._environment.decide(baseline, generator, remaining), self._task)

    def close(self) -> None:
        """Close the environment."""
        self._environment.close()


def _numbers(kind: str, values: object, task: Task) -> Mapping[str, float]:
    """The values as floats: themselves where they are. `kind`: "reward" or "metric"."""
    if not isinstance(values, Mapping):
        raise ContractError(
            f"the {kind}s of {task.id} must be a mapping from names to numbers; found {quoted(values)}",
            "TW-answer-type",
        )
    if all(type(name) is str and type(value) is float and abs(value) <= LARGEST for name, value in values.items()):
        return values
    for name in values:
        _require_text(f"the name of a {kind} of {task.id}", name)
    advice = f": leave the {kind} out where there is none"
    return {name: finite_number(f"{kind} {name} of {task.id}", value, advice) for name, value in values.items()}


def _require_text(what: str, value: object, others: str = "") -> None:
    if not isinstance(value, str):
        advice = ": decode it" if isinstance(value, bytes | bytearray | memoryview) else ""
        raise ContractError(f"{what} must be a text (str){others}; found {quoted(value)}{advice}", "TW-answer-type")
