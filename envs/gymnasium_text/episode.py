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

from typing import Any

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
        self._sound = True
        self._text = ""
        self._terminated = self._truncated = self._success = False

    def reset(self) -> Observation:
        """Start from the task's seed; everything after the first observation draws from the episode's own seed."""
        self._sound = False
        observation, _ = self._environment.reset(seed=self._task.seed)
        self._sound = True
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
        self._sound = False
        observation, reward, terminated, truncated, information = self._environment.step(value)
        self._sound = True
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
        """Return the environment to the game, unless it raised: another episode would begin with what is broken."""
        if self._sound:
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


class TextEpisode(Environment):
    """One episode on an environment borrowed from the game until `close`. Its own step limit applies, as truncation."""

    def __init__(self, game: Game, task: Task, seed: int) -> None:
        self._game, self._task, self._seed = game, task, seed
        self._environment = game.take()
        self._sound = True
        self._text = ""
        self._offered: tuple[str, ...] | None = None
        self._solution: tuple[str, ...] | None = None
        self._terminated = self._truncated = self._success = False

    def reset(self) -> Observation:
        """Start from the task's seed; everything after the first observation draws from the episode's own seed."""
        self._sound = False
        observation, information = self._environment.reset(seed=self._task.seed)
        self._sound = True
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
        self._sound = False
        observation, reward, terminated, truncated, information = self._environment.step(meant)
        self._sound = True
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
        """Return the environment to the game, unless it raised: another episode would begin with what is broken."""
        if self._sound:
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
