"""A small world that keeps the contract, worlds that each break it in one way, and two that are hard to begin with."""

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

import numpy as np

from turnwise.world import (
    Column,
    Environment,
    Limits,
    Observation,
    Remaining,
    Reward,
    ScriptedAction,
    Split,
    Step,
    Task,
    World,
)

LENGTH = 5


class Walk(Environment):
    """A corridor of five cells: P is where you are, G the goal."""

    def __init__(self, goal: int, name: str) -> None:
        self.goal, self.name, self.place = goal, name, 0

    def reset(self) -> Observation:
        return self.observe()

    def step(self, action: str) -> Step:
        if action.strip() not in ("left", "right"):
            return Step(self.observe("Legal: left, right."), valid=False, effective=False)
        before = self.place
        self.place = min(max(self.place + (1 if action.strip() == "right" else -1), 0), LENGTH - 1)
        arrived = self.place == self.goal
        rewards = {"goal": 1.0} if arrived else {}
        return Step(self.observe(), rewards, arrived, effective=self.place != before, success=arrived)

    def oracle(self, remaining: Remaining) -> ScriptedAction:
        return ScriptedAction("on", ("right" if self.goal > self.place else "left",))

    def random(self, generator: np.random.Generator, remaining: Remaining) -> ScriptedAction:
        return ScriptedAction("any", ("right" if generator.integers(2) else "left",))

    def observe(self, preface: str = "") -> Observation:
        cells = ["P" if cell == self.place else "G" if cell == self.goal else "." for cell in range(LENGTH)]
        return Observation(preface + " ".join(cells), state=str(self.place))


class Corridor(World):
    """Keeps the contract; each class below but the last two breaks it in one way."""

    name: ClassVar[str] = "corridor"
    version: ClassVar[str] = "1"
    instruction = "Walk from P to G."
    grammar = "left or right"
    rewards: ClassVar[Mapping[str, Reward]] = {"goal": Reward("1 at the goal", "outcome", 1.0)}
    walk: ClassVar[type[Walk]] = Walk

    def __init__(self, *, turns: int = 6) -> None:
        self.limits = Limits(turns=turns)

    def tasks(self, split: Split, count: int) -> list[Task]:
        return [Task(self.name, f"corridor/{split}/{number}", split, number) for number in range(count)]

    def make(self, task: Task, seed: int) -> Walk:
        return self.walk(1 + task.seed % (LENGTH - 1), task.id)


class Wandering(Walk):
    def step(self, action: str) -> Step:
        os.chdir("..")
        return super().step(action)


class Vagrant(Corridor):
    """Changes the working directory."""

    walk = Wandering


class Leaving(Walk):
    def reset(self) -> Observation:
        os.environ["CORRIDOR"] = self.name
        return super().reset()

    def step(self, action: str) -> Step:
        print("step!", action)
        return super().step(action)


class Untidy(Corridor):
    """Changes the environment, and prints."""

    walk = Leaving


class Numbering(Walk):
    def step(self, action: str) -> Step:
        return replace(super().step(action), metrics={1: 1.0})  # type: ignore[dict-item]


class Numbered(Corridor):
    """Has a metric whose name is no text."""

    walk = Numbering


class Speechless(Corridor):
    grammar = " "


class Unshown(Corridor):
    """Is compared by a number that no column shows."""

    primary_metric = "speed"


class Failures(Corridor):
    """Is compared by a number of which lower values are better."""

    name = "failures"
    primary_metric = "failed"
    columns = (Column("failed", "failed", better="lower"),)


class Undrawn(Corridor):
    """Has no random baseline policy."""

    baselines = ("oracle",)


class Unplayed(Corridor):
    """Has no baseline policy at all."""

    baselines = ()


class Shorter(Corridor):
    """Says that it has fewer tasks than it gives."""

    def split_size(self, split: Split) -> int | None:
        return 7


class Longer(Corridor):
    """Says that it has more tasks than it gives."""

    def split_size(self, split: Split) -> int | None:
        return 7

    def tasks(self, split: Split, count: int) -> list[Task]:
        return super().tasks(split, count)[:5]


class Reordered(Corridor):
    def tasks(self, split: Split, count: int) -> list[Task]:
        return super().tasks(split, count)[::-1]


class Repeated(Corridor):
    def tasks(self, split: Split, count: int) -> list[Task]:
        return [Task(self.name, f"corridor/{split}/{number // 2}", split, number // 2) for number in range(count)]


class Shared(Corridor):
    def tasks(self, split: Split, count: int) -> list[Task]:
        return [Task(self.name, f"corridor/{number}", split, number) for number in range(count)]


class Silent(Corridor):
    class walk(Walk):
        def reset(self) -> Observation:
            return Observation("  ", state="0")


class Telling(Corridor):
    class walk(Walk):
        def reset(self) -> Observation:
            return Observation(f"{self.name}: {self.observe().text}", state="0")


class Counting(Corridor):
    class walk(Walk):
        made = 0

        def reset(self) -> Observation:
            type(self).made += 1
            return Observation(f"episode {self.made}: {self.observe().text}", state="0")


class Entangled(Corridor):
    class walk(Walk):
        steps: ClassVar[list[str]] = []

        def reset(self) -> Observation:
            self.steps.clear()
            return self.observe()

        def step(self, action: str) -> Step:
            self.steps.append(action)
            return super().step(action)

        def observe(self, preface: str = "") -> Observation:
            return Observation(f"{preface}after {len(self.steps)} steps: {super().observe().text}")


class Touching(Corridor):
    class walk(Walk):
        def oracle(self, remaining: Remaining) -> ScriptedAction:
            self.name += "'"
            return super().oracle(remaining)

        def observe(self, preface: str = "") -> Observation:
            return Observation(preface + super().observe().text + "'" * self.name.count("'"))


class Hashed(Corridor):
    class walk(Walk):
        def reset(self) -> Observation:
            return Observation(" ".join({f"word {number}" for number in range(20)}), state="0")


class Misguided(Corridor):
    class walk(Walk):
        def oracle(self, remaining: Remaining) -> ScriptedAction:
            return ScriptedAction("on", ("onwards",))


class Hasty(Corridor):
    class walk(Walk):
        def random(self, generator: np.random.Generator, remaining: Remaining) -> ScriptedAction:
            return ScriptedAction("any", ("left", "right"))


class Idle(Corridor):
    class walk(Walk):
        def oracle(self, remaining: Remaining) -> ScriptedAction:
            return ScriptedAction("nothing to do", ())


class Generous(Corridor):
    class walk(Walk):
        def step(self, action: str) -> Step:
            return Step(super().step(action).observation, {"gift": 1.0})


class Infinite(Corridor):
    class walk(Walk):
        def step(self, action: str) -> Step:
            return Step(super().step(action).observation, {"goal": float("nan")})


class Nameless(Corridor):
    class walk(Walk):
        def observe(self, preface: str = "") -> Observation:
            return Observation(super().observe(preface).text)


class Frank(Nameless):
    """Keeps the contract: it says that it names no states."""

    names_states = False


class Mistaken(Corridor):
    names_answers = True

    def answer(self, task: Task) -> str:
        return "left"


class Modest(Corridor):
    class walk(Walk):
        def step(self, action: str) -> Step:
            step = super().step(action)
            return Step(step.observation, step.rewards, step.terminated, effective=False, success=step.success)


class Fragile(Corridor):
    class walk(Walk):
        def step(self, action: str) -> Step:
            if len(action) > 10_000:
                raise MemoryError("too long for me")
            return super().step(action)


class Mute(Corridor):
    class walk(Walk):
        def step(self, action: str) -> Step:
            step = super().step(action)
            return step if step.valid else Step(Observation("", state=str(self.place)), valid=False, effective=False)


class Punishing(Corridor):
    class walk(Walk):
        def step(self, action: str) -> Step:
            step = super().step(action)
            if not step.valid:
                self.place = 0 if self.place else 1
            return step if step.valid else Step(self.observe("No. "), valid=False, effective=False)


class Confused(Corridor):
    class walk(Walk):
        def step(self, action: str) -> Step:
            step = super().step(action)
            if not step.valid:
                self.goal = LENGTH - 1 - self.goal
            return step


class Clinging(Corridor):
    class walk(Walk):
        place_was: int

        def reset(self) -> Observation:
            self.place_was = self.place
            return super().reset()

        def close(self) -> None:
            self.place = self.place_was


class Communal(Corridor):
    class walk(Walk):
        shut: ClassVar[bool] = False

        def reset(self) -> Observation:
            type(self).shut = False
            return super().reset()

        def step(self, action: str) -> Step:
            return Step(Observation("The corridor is shut.")) if self.shut else super().step(action)

        def close(self) -> None:
            type(self).shut = True


class Lost(Corridor):
    class walk(Walk):
        def oracle(self, remaining: Remaining) -> ScriptedAction:
            return ScriptedAction("on", ("left",))


class Timid(Corridor):
    """Its random policy never leaves the first cell, and so never earns anything."""

    class walk(Walk):
        def random(self, generator: np.random.Generator, remaining: Remaining) -> ScriptedAction:
            return ScriptedAction("back", ("left",))


class Unknown(Corridor):
    """Nobody knows what to do."""

    class walk(Walk):
        def oracle(self, remaining: Remaining) -> ScriptedAction:
            raise ValueError("nobody knows")

    baselines = ("random",)
