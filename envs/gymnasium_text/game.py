"""A Gymnasium environment with its settings: everything that the episodes of a world share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium

from envs.gymnasium_text.planner import GamePlan
from envs.gymnasium_text.settings import Settings
from envs.gymnasium_text.views import Template, without_colours
from turnwise.world import ContractError, quoted


class Game:
    """Makes environments, names their actions, shows observations as text, and plans where they publish a model.

    The settings are validated by trying them out. Raises ValueError.
    """

    def __init__(self, identifier: str, arguments: Mapping[str, Any], settings: Settings) -> None:
        if "render_mode" in arguments:
            raise ValueError("arguments must leave render_mode to view: set view to 'ansi' for a picture in letters")
        self._identifier = identifier
        self._arguments = {**arguments, **({"render_mode": "ansi"} if settings.view == "ansi" else {})}
        self._settings = settings
        self._template = Template(settings.template, settings.fields) if settings.view == "template" else None
        self._idle: list[Any] = []
        environment = self.take()
        self.actions = _ordered(settings.action_values or {}, environment.action_space)
        """The value of every action by name, sorted by value; none where an action is any text."""
        self.texts = _texts(environment.action_space) if settings.action == "text" else None
        """The space of the actions where an action is any text."""
        observation, information = environment.reset(seed=0)
        self.describe(environment, observation)
        for key in ("offers", "solution"):
            if (name := getattr(settings, key)) is not None:
                read_texts(key, name, information)
        self.plan = self._plan(environment.unwrapped)
        """The oracle's plan; None where no oracle is possible."""
        self.give_back(environment)

    def take(self) -> Any:
        """An environment that no other episode uses: a returned one, or a new one.

        Environments are reused because making one can take longer than a whole episode: Taxi computes its model each
        time, 14 ms against 0.04 ms for a reset. Gymnasium requires that a reset leaves nothing of the episode before.
        """
        try:
            return self._idle.pop()
        except IndexError:
            return self._make()

    def give_back(self, environment: Any) -> None:
        """Make the environment available to another episode."""
        self._idle.append(environment)

    def describe(self, environment: Any, observation: Any) -> str:
        """Observation as text. Raises ContractError when the view does not fit it."""
        if self._template is not None:
            try:
                return self._template.fill(observation)
            except ValueError as error:
                raise ContractError(str(error), "TW-answer-type") from error
        text = environment.render() if self._settings.view == "ansi" else observation
        if not isinstance(text, str) or not text.strip():
            raise ContractError(
                f"view {self._settings.view!r} must give a text; {self._identifier!r} gave {quoted(text)}",
                "TW-answer-type",
            )
        return without_colours(text)

    def succeeded(self, reward: float, information: Mapping[str, Any]) -> bool:
        """Whether an episode that terminates with this reward and information has solved its task."""
        if self._settings.success_info is not None:
            return bool(information.get(self._settings.success_info, False))
        return self._settings.success_reward is not None and reward >= self._settings.success_reward

    def offers(self, information: Mapping[str, Any]) -> tuple[str, ...] | None:
        """The actions that the environment says are possible now; None where it says nothing."""
        return None if self._settings.offers is None else read_texts("offers", self._settings.offers, information)

    def solution(self, information: Mapping[str, Any]) -> tuple[str, ...] | None:
        """The actions that solve the task from here, as the environment says; None where it says nothing."""
        return None if self._settings.solution is None else read_texts("solution", self._settings.solution, information)

    @property
    def legal(self) -> str:
        """The names of the actions as listed in a refusal, or the grammar without its full stop."""
        if self.texts is not None:
            return str(self._settings.grammar).rstrip(". ")
        *others, last = self.actions
        return f"{', '.join(others)} or {last}" if others else last

    def _make(self) -> Any:
        try:
            return gymnasium.make(self._identifier, disable_env_checker=True, **self._arguments)
        except (gymnasium.error.Error, ImportError, TypeError) as error:
            raise ValueError(
                f"id and arguments must make a Gymnasium environment; {self._identifier!r} with {self._arguments} "
                f"raised {type(error).__name__}: {error}"
            ) from error

    def _plan(self, unwrapped: Any) -> GamePlan | None:
        """Plan, if success is defined by a reward and the model has Gymnasium's form: states numbered from 0."""
        model = getattr(unwrapped, "P", None)
        if self._settings.success_reward is None or not isinstance(model, Mapping) or not hasattr(unwrapped, "s"):
            return None
        if any(state not in model for state in range(len(model))):
            return None
        return GamePlan(model, list(self.actions.values()), self._settings.success_reward)


def read_texts(key: str, name: str, information: Mapping[str, Any]) -> tuple[str, ...]:
    """The texts under a key of an environment's information. Raises ContractError where there is no list of texts."""
    texts = information.get(name)
    if not isinstance(texts, list | tuple) or not all(isinstance(each, str) for each in texts):
        raise ContractError(
            f"{key} must be a key of the information with a list of texts; found {texts!r} under {name}",
            "TW-answer-type",
        )
    return tuple(texts)


def _texts(space: Any) -> gymnasium.spaces.Text:
    if not isinstance(space, gymnasium.spaces.Text):
        raise ValueError(f"action 'text' must be for an environment whose actions are texts; found {space}")
    return space


def _ordered(action_values: Mapping[str, int], space: Any) -> dict[str, int]:
    """Actions sorted by value (then name), so that the order in a file does not matter.

    Raises ValueError for a value that the action space lacks.
    """
    for name, value in action_values.items():
        if not isinstance(value, int) or isinstance(value, bool) or not space.contains(value):
            raise ValueError(f"action_values.{name} must be a whole number out of {space}; found {value!r}")
    return {name.strip(): value for name, value in sorted(action_values.items(), key=lambda item: (item[1], item[0]))}
