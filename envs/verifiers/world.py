"""The world: an environment of verifiers by the module that holds it, with its rows as tasks."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, ClassVar

from envs.verifiers.episode import VerifiersEpisode
from envs.verifiers.library import load
from turnwise import seeding
from turnwise.world import Column, Limits, Reward, Split, Task, World, positive, require_family, whole_number

PLACES: Mapping[Split, tuple[int, ...]] = {"train": (0, 1, 2, 3, 4, 5, 6), "validation": (7,), "test": (8, 9)}
"""The places in every ten rows that a split has."""


class Verifiers(World):
    """Any environment of verifiers that brings its tasks and scores without another model.

    Parameters: `environment`, the module, or `module:function` where version 0.1 is loaded otherwise than by
    `load_environment`; `arguments`, what it is made with; `success_reward`: an episode succeeds with at least this
    reward; `solution`, the field of a task with the reply that solves it, which the oracle gives; `instruction`;
    `turns`, the limit of an episode. A reply is the action; the reward comes at the end.
    """

    name: ClassVar[str] = "verifiers"
    version: ClassVar[str] = "1"
    names_states = False
    rewards: ClassVar[Mapping[str, Reward]] = {
        "reward": Reward("what the environment gives an episode", "outcome", 1.0)
    }
    columns: ClassVar[tuple[Column, ...]] = (*World.columns, Column("return", "reward", percent=False))
    grammar = "Any text; TOOL[ARGUMENTS] calls a tool, where the task names tools."

    def __init__(
        self,
        *,
        environment: str,
        arguments: Mapping[str, Any] | None = None,
        success_reward: float = 1.0,
        solution: str | None = None,
        instruction: str = "Do what the task asks.",
        turns: int = 20,
    ) -> None:
        self._environment, self._arguments = environment, dict(arguments or {})
        self._library = load(environment, self._arguments)
        self._success_reward = positive("success_reward", success_reward)
        self.limits = Limits(turns=whole_number("turns", turns, 1, 1000))
        self.instruction = instruction
        if solution is not None and solution not in (row := self._library.row(0)):
            raise ValueError(f"solution must be a field of a task, {', '.join(row)}; found {solution!r}")
        self._solution = solution
        self.baselines = () if solution is None else ("oracle",)
        variant = seeding.derive(0, "verifiers arguments", json.dumps(self._arguments, sort_keys=True))
        self._family = f"{self.name}/{self.version}/{self._environment}-{variant:x}/"

    def tasks(self, split: Split, count: int) -> list[Task]:
        """The first `count` rows of a split: of every ten, seven for training, one for validation, two for tests."""
        size, places = self.split_size(split), PLACES[split]
        rows = (10 * (place // len(places)) + places[place % len(places)] for place in range(count))
        tasks = [self._task(split, row) for row in rows if self._library.size is None or row < self._library.size]
        if size is not None and count > size:
            raise ValueError(f"{split} has {size} tasks; found a count of {count}")
        return tasks

    def split_size(self, split: Split) -> int | None:
        """The number of rows of a split; None where the environment has no end."""
        size = self._library.size
        return None if size is None else sum(1 for row in range(size) if row % 10 in PLACES[split])

    def make(self, task: Task, seed: int) -> VerifiersEpisode:
        """An episode on a row. `seed` is unused: the library knows none."""
        require_family(task, self._family)
        return VerifiersEpisode(self._library, int(task.id.rsplit("/", 1)[1]), self._success_reward, self._solution)

    @classmethod
    def distributions(cls, parameters: Mapping[str, Any]) -> tuple[str, ...]:
        """The library, and what a rollout asks its model with."""
        return ("verifiers", "openai")

    def _task(self, split: Split, row: int) -> Task:
        name = f"{self._family}{split}/{row}"
        return Task(self.name, name, split, seeding.derive(0, name))
