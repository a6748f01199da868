"""NumberGame: find a hidden number by asking. Change it step by step into the world that you need.

turnwise check number_game:NumberGame      does it keep its contract?
turnwise play number_game:NumberGame       play an episode yourself
turnwise ablation number_game.yaml         train on it
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from turnwise import seeding
from turnwise.world import Environment, Limits, Observation, Remaining, Reward, ScriptedAction, Split, Step, Task, World

NUMBERS = 60
"""The hidden number is one of 1 to this."""


class NumberGame(World):
    """The world: its tasks, its limits, and what it pays."""

    name = "number_game"
    version = "1"  # increase it when you change the rules: results of before are then computed again
    oracle_success = 1.0  # what the oracle reaches at least; `turnwise check` plays it
    blocks = False  # nothing here waits for a file or a server
    instruction = f"Find the hidden number from 1 to {NUMBERS}."
    grammar = f"A number from 1 to {NUMBERS}."
    limits = Limits(turns=6)
    rewards: ClassVar = {"found": Reward("1 when the number is found", "outcome", 1.0)}

    def tasks(self, split: Split, count: int) -> list[Task]:
        """The first tasks of one fixed order. An id means the same task for ever."""
        ids = [f"{self.name}/{self.version}/{split}/{place}" for place in range(count)]
        return [Task(self.name, each, split, seeding.derive(0, each)) for each in ids]

    def make(self, task: Task, seed: int) -> Environment:
        """One episode. The problem comes from the task; chance within the episode, if any, from the seed."""
        # No split holds the problem of another. They are cut from shuffled numbers, so that one is as hard as another.
        shuffled = 1 + np.random.default_rng(1).permutation(NUMBERS)
        validation, test, train = np.split(shuffled, (NUMBERS // 5, 2 * NUMBERS // 5))
        numbers = {"train": train, "validation": validation, "test": test}[task.split]
        return HiddenNumber(int(numbers[task.seed % len(numbers)]))


class HiddenNumber(Environment):
    """One episode: the state that `step` changes."""

    def __init__(self, hidden: int) -> None:
        self.hidden, self.lowest, self.highest = hidden, 1, NUMBERS

    def reset(self) -> Observation:
        """What the agent reads first."""
        return self._observe("Ask.")

    def step(self, action: str) -> Step:
        """Answer whatever was written. What is illegal is said to be, and changes nothing."""
        text = action.strip()
        if not text.isascii() or not text.isdecimal() or not 1 <= int(text[:9]) <= NUMBERS:
            return Step(self._observe(f"That is no number from 1 to {NUMBERS}."), valid=False, effective=False)
        guess, before = int(text), (self.lowest, self.highest)
        if guess == self.hidden:
            return Step(Observation(f"{guess} it is."), {"found": 1.0}, terminated=True, success=True)
        if guess < self.hidden:
            self.lowest = max(self.lowest, guess + 1)
        else:
            self.highest = min(self.highest, guess - 1)
        hint = "higher" if guess < self.hidden else "lower"
        return Step(self._observe(f"It is {hint}."), {"found": 0.0}, effective=before != (self.lowest, self.highest))

    def oracle(self, remaining: Remaining) -> ScriptedAction:
        """A good move: demonstrations are its, and every table has its score."""
        middle = (self.lowest + self.highest) // 2
        return ScriptedAction(f"{self.lowest} to {self.highest}", (str(middle),))

    def random(self, generator: np.random.Generator, remaining: Remaining) -> ScriptedAction:
        """Uniform over all numbers."""
        return ScriptedAction("any", (str(generator.integers(1, NUMBERS + 1)),))

    def _observe(self, text: str) -> Observation:
        # Equal states have equal names: some credit rules compare what was done in one state.
        return Observation(text, state=f"{self.lowest}-{self.highest}")
