"""One episode of a Gymnasium environment whose actions are texts, and its baseline policies.

Every text that is in the environment's action space goes to the environment, which answers in its own words also where
it does not understand. Where the environment lists the possible actions, an action is valid if it is listed.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from envs.gymnasium_text.game import Game
from turnwise import seeding
from turnwise.world import Environment, Observation, Remaining, ScriptedAction, Step, Task, finite_number


class TextEpisode(Environment):
    """One episode on an environment borrowed from the game until `close`. Its own step limit applies, as truncation."""

    def __init__(self, game: Game, task: Task, seed: int) -> None:
        self._game, self._task, self._seed = game, task, seed
        self._environment = game.take()
        self._text = ""
        self._offered: tuple[str, ...] | None = None
        self._solution: tuple[str, ...] | None = None
        self._terminated = self._truncated = self._success = False

    def reset(self) -> Observation:
        """Start from the task's seed; everything after the first observation draws from the episode's own seed."""
        observation, information = self._environment.reset(seed=self._task.seed)
        self._environment.unwrapped.np_random = seeding.generator(self._seed, "gymnasium noise", self._task.id)
        self._take_in(observation, information)
        return Observation(self._text)

    def step(self, action: str) -> Step:
        """Send a text to the environment. What its action space lacks, and any text after the end, is refused here."""
        meant = action.strip()
        assert self._game.texts is not None, "the world makes this episode only for texts"
        if self._terminated or self._truncated or not self._game.texts.contains(meant):
            return self._refuse()
        valid = self._offered is None or meant in self._offered
        observation, reward, terminated, truncated, information = self._environment.step(meant)
        reward = finite_number(f"reward of {self._task.id}", reward)
        self._terminated, self._truncated = bool(terminated), bool(truncated) and not terminated
        self._success = self._terminated and self._game.succeeded(reward, information)
        before = self._text
        self._take_in(observation, information)
        return Step(
            Observation(self._text),
            {"reward": reward, "solved": float(self._success)},
            terminated=self._terminated,
            truncated=self._truncated,
            valid=valid and not information.get("invalid", False),
            effective=self._text != before,
            success=self._success,
        )

    def oracle(self, remaining: Remaining) -> ScriptedAction:
        """The next action of the environment's own solution. Raises ValueError where it tells none."""
        if not self._solution:
            raise ValueError(f"the oracle needs the environment's solution; {self._task.id} tells none")
        return ScriptedAction(f"{self._solution[0]} is next", (self._solution[0],))

    def random(self, generator: np.random.Generator, remaining: Remaining) -> ScriptedAction:
        """Uniform over the actions that the environment lists. Raises ValueError where it lists none."""
        if not self._offered:
            raise ValueError(f"the random baseline policy needs a list of actions; {self._task.id} tells none")
        return ScriptedAction("a random action", (self._offered[int(generator.integers(len(self._offered)))],))

    def close(self) -> None:
        """Return the environment to the game."""
        self._game.give_back(self._environment)

    def _take_in(self, observation: Any, information: dict[str, Any]) -> None:
        self._text = self._game.describe(self._environment, observation)
        if not (self._terminated or self._truncated):
            self._offered, self._solution = self._game.offered(information), self._game.solution(information)

    def _refuse(self) -> Step:
        ended = self._terminated or self._truncated
        return Step(
            Observation(self._text if ended else f"Not an action. {self._game.legal}.\n{self._text}"),
            terminated=self._terminated,
            truncated=self._truncated,
            valid=False,
            effective=False,
            success=self._success,
        )
