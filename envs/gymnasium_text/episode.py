"""One episode of a Gymnasium environment, and its baseline policies.

Gymnasium uses one generator for both the problem and the noise of an episode. Here `reset` gets the task's seed, so the
task alone determines how an episode begins; then the generator is replaced by one seeded for the episode, so that the
episodes of a group differ in their noise. An environment that draws random numbers elsewhere, against Gymnasium's
rules, has equal noise in all episodes of a task, or does not repeat at all: `turnwise check` shows it.

Where actions are texts, every text that is in the environment's action space goes to the environment, which answers in
its own words also where it does not understand. Where the environment lists the possible actions, an action is valid if
it is listed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from envs.gymnasium_text.game import Game
from turnwise import seeding
from turnwise.world import Environment, Observation, Remaining, ScriptedAction, Step, Task, finite_number


class BorrowedEpisode(Environment):
    """One episode on an environment borrowed from the game until `close`. Its own step limit applies, as truncation."""

    def __init__(self, game: Game, task: Task, seed: int) -> None:
        self._game, self._task, self._seed = game, task, seed
        self._environment = game.take()
        self._sound = True
        self._text = ""
        self._terminated = self._truncated = self._success = False

    def close(self) -> None:
        """Return the environment to the game. One that raised is closed: no other episode begins with it."""
        if self._sound:
            self._game.give_back(self._environment)
        else:
            self._environment.close()

    @property
    def _ended(self) -> bool:
        return self._terminated or self._truncated

    def _begin(self) -> dict[str, Any]:
        """Start from the task's seed; everything after the first observation draws from the episode's own seed."""
        self._sound = False
        observation, information = self._environment.reset(seed=self._task.seed)
        self._sound = True
        self._environment.unwrapped.np_random = seeding.generator(self._seed, "gymnasium noise", self._task.id)
        self._text = self._game.describe(self._environment, observation)
        return dict(information)

    def _play(self, action: Any) -> tuple[dict[str, float], dict[str, Any]]:
        """Play an action of the environment's: the rewards of the step, and what the environment tells besides."""
        self._sound = False
        observation, reward, terminated, truncated, information = self._environment.step(action)
        self._sound = True
        self._text = self._game.describe(self._environment, observation)
        reward = finite_number(f"reward of {self._task.id}", reward)
        self._terminated, self._truncated = bool(terminated), bool(truncated) and not terminated
        self._success = self._terminated and self._game.succeeded(reward, information)
        return {"reward": reward, "solved": float(self._success)}, information

    def _step(
        self, observation: Observation, rewards: Mapping[str, float], *, valid: bool = True, effective: bool
    ) -> Step:
        return Step(
            observation,
            rewards,
            terminated=self._terminated,
            truncated=self._truncated,
            valid=valid,
            effective=effective,
            success=self._success,
        )

    def _refuse(self, observation: Observation) -> Step:
        return self._step(observation, {}, valid=False, effective=False)


class GymnasiumEpisode(BorrowedEpisode):
    """An episode whose actions have names."""

    def reset(self) -> Observation:
        """The first observation."""
        self._begin()
        return self._observe()

    def step(self, action: str) -> Step:
        """Play an action by its name, in any case; other text changes nothing."""
        action_name = action.strip().casefold()
        value = next((value for name, value in self._game.actions.items() if name.casefold() == action_name), None)
        if value is None or self._ended:
            return self._refuse(self._observe("" if self._ended else f"Not an action. Legal: {self._game.legal}.\n"))
        before = self._observe()
        rewards, _ = self._play(value)
        after = self._observe()
        effective = after != before if after.state is None else after.state != before.state
        return self._step(after, rewards, effective=effective)

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

    def _observe(self, preface: str = "") -> Observation:
        # A published model numbers the states; without one, nothing says which situations are equal.
        state = None if self._game.plan is None else str(int(self._environment.unwrapped.s))
        return Observation(preface + self._text, state)


class TextEpisode(BorrowedEpisode):
    """An episode whose actions are texts."""

    def __init__(self, game: Game, task: Task, seed: int) -> None:
        super().__init__(game, task, seed)
        self._offers: tuple[str, ...] | None = None
        self._solution: tuple[str, ...] | None = None

    def reset(self) -> Observation:
        """The first observation."""
        self._take_in(self._begin())
        return Observation(self._text)

    def step(self, action: str) -> Step:
        """Send a text to the environment. What its action space lacks, and any text after the end, is refused here."""
        text = action.strip()
        assert self._game.texts is not None, "the world makes this episode only for texts"
        if self._ended:
            return self._refuse(Observation(self._text))
        if not self._game.texts.contains(text):
            return self._refuse(Observation(f"Not an action. {self._game.legal}.\n{self._text}"))
        valid = self._offers is None or text in self._offers
        before = self._text
        rewards, information = self._play(text)
        self._take_in(information)
        valid = valid and not information.get("invalid", False)
        return self._step(Observation(self._text), rewards, valid=valid, effective=self._text != before)

    def oracle(self, remaining: Remaining) -> ScriptedAction:
        """The next action of the environment's own solution. Raises ValueError where it tells none."""
        if not self._solution:
            raise ValueError(f"the oracle needs the environment's solution; {self._task.id} tells none")
        return ScriptedAction(f"{self._solution[0]} is next", (self._solution[0],))

    def random(self, generator: np.random.Generator, remaining: Remaining) -> ScriptedAction:
        """Uniform over the actions that the environment lists. Raises ValueError where it lists none."""
        if not self._offers:
            raise ValueError(f"the random baseline policy needs a list of actions; {self._task.id} tells none")
        return ScriptedAction("a random action", (self._offers[int(generator.integers(len(self._offers)))],))

    def _take_in(self, information: Mapping[str, Any]) -> None:
        if not self._ended:
            self._offers, self._solution = (
                self._game.offers(information),
                self._game.solution(information),
            )
