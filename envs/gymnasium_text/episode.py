"""One episode of a Gymnasium environment, and its baseline policies.

Gymnasium uses one generator for both the problem and the noise of an episode. Here `reset` gets the task's seed, so the
task alone determines how an episode begins; then the generator is replaced by one seeded for the episode, so that the
episodes of a group differ in their noise. An environment that draws random numbers elsewhere, against Gymnasium's
rules, has equal noise in all episodes of a task, or does not repeat at all: `turnwise check` shows it.
"""

from __future__ import annotations

import numpy as np

from envs.gymnasium_text.game import Game
from turnwise import seeding
from turnwise.world import Environment, Observation, Remaining, ScriptedAction, Step, Task, finite_number


class GymnasiumEpisode(Environment):
    """One episode on an environment borrowed from the game until `close`. Its own step limit applies, as truncation."""

    def __init__(self, game: Game, task: Task, seed: int) -> None:
        self._game = game
        self._task = task
        self._seed = seed
        self._environment = game.take()
        self._text = ""
        self._terminated = self._truncated = self._success = False

    def reset(self) -> Observation:
        """Start from the task's seed; everything after the first observation draws from the episode's own seed."""
        observation, _ = self._environment.reset(seed=self._task.seed)
        noise = seeding.generator(self._seed, "gymnasium noise", self._task.id)
        self._environment.unwrapped.np_random = noise
        self._text = self._game.describe(self._environment, observation)
        return self._observe()

    def step(self, action: str) -> Step:
        """Play an action by its name, in any case; other text changes nothing."""
        meant = action.strip().casefold()
        value = next((value for name, value in self._game.actions.items() if name.casefold() == meant), None)
        if value is None or self._ended:
            return self._refuse()
        before = self._observe()
        observation, reward, terminated, truncated, information = self._environment.step(value)
        self._text = self._game.describe(self._environment, observation)
        reward = finite_number(f"reward of {self._task.id}", reward)
        self._terminated, self._truncated = bool(terminated), bool(truncated) and not terminated
        self._success = self._terminated and self._game.succeeded(reward, information)
        after = self._observe()
        return Step(
            after,
            {"reward": reward, "solved": float(self._success)},
            terminated=self._terminated,
            truncated=self._truncated,
            effective=after != before if after.state is None else after.state != before.state,
            success=self._success,
        )

    def oracle(self, remaining: Remaining) -> ScriptedAction:
        """The best actions under the environment's own model: see `planner`. Raises ValueError if there is no plan."""
        if self._game.plan is None:
            raise ValueError(
                "the oracle needs the environment's model and state, P and s, and success_reward; "
                f"{self._task.id} lacks one of them: play it with the random baseline policy only"
            )
        actions = min(remaining.actions, remaining.turns * remaining.actions_per_turn)
        most = min(remaining.actions_per_turn, remaining.actions)
        values = self._game.plan.sequence(int(self._environment.unwrapped.s), actions, most)
        names = {value: name for name, value in self._game.actions.items()}
        return ScriptedAction(f"{names[values[0]]} is best", tuple(names[value] for value in values))

    def random(self, generator: np.random.Generator, remaining: Remaining) -> ScriptedAction:
        """As many actions as the turn allows, each uniform over the names of the actions, of use or not."""
        names = list(self._game.actions)
        count = min(remaining.actions_per_turn, remaining.actions)
        return ScriptedAction(
            "a random action", tuple(names[place] for place in generator.integers(len(names), size=count))
        )

    def close(self) -> None:
        """Return the environment to the game."""
        self._game.give_back(self._environment)

    @property
    def _ended(self) -> bool:
        return self._terminated or self._truncated

    def _observe(self, preface: str = "") -> Observation:
        # A published model numbers the states; without one, nothing says which situations are equal.
        state = None if self._game.plan is None else str(int(self._environment.unwrapped.s))
        return Observation(preface + self._text, state)

    def _refuse(self) -> Step:
        return Step(
            self._observe("" if self._ended else f"Not an action. Legal: {self._game.legal}.\n"),
            terminated=self._terminated,
            truncated=self._truncated,
            valid=False,
            effective=False,
            success=self._success,
        )
