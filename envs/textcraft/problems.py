"""Problems: a goal, the number wanted, and the recipes that the task lists.

A goal belongs to one split, by a digest of its name: every fifth item is a test goal, every tenth a validation goal.
The goals of a split come in rounds: each round has every goal once, in its own order and with its own distractors. So a
task set may be longer than the list of goals; beyond it, goals repeat. Splits share the kinds of goal (birch stairs and
oak stairs are two goals) and intermediate products, which every recipe list shows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from envs.textcraft.recipes import GAME_VERSION, Recipe, depth, recipes, tree
from turnwise import seeding
from turnwise.world import Split

Thing = TypeVar("Thing")

VERSION = "1"
FAMILY = f"textcraft/{VERSION}/minecraft-{GAME_VERSION}/"
DEPTHS = (1, 2, 3, 4)
"""Possible depths of a goal: the longest chain of crafts from raw items."""


@dataclass(frozen=True)
class CraftingProblem:
    """Make `wanted` of the item `goal`. `round` determines the distractors and the order of the recipe list."""

    goal: str
    wanted: int
    round: int

    @property
    def id(self) -> str:
        """Permanent id: it depends on the game's version and on nothing else."""
        name = self.goal.replace(" ", "_")
        return f"{FAMILY}{name}/{self.wanted}/{self.round}"

    @property
    def seed(self) -> int:
        """Seed for the distractors and the order of the list."""
        return seeding.derive(0, self.id)

    def recipe_list(self, distractors: int) -> tuple[Recipe, ...]:
        """The goal's recipe tree and `distractors` recipes that it does not need, in random order.

        Distractors use an ingredient of the tree, as in AgentGym, while there are any. A longer list of distractors
        contains the shorter ones.
        """
        needed = tree(self.goal)
        used = {item for recipe in needed for item, _ in recipe.ingredients}
        crafted = {recipe.product for recipe in needed}
        others = [recipe for product, recipe in recipes().items() if product not in crafted]
        generator = seeding.generator(self.seed, "textcraft distractors")
        shuffled = _shuffled(others, generator)
        shuffled.sort(key=lambda recipe: used.isdisjoint(dict(recipe.ingredients)))
        listed_recipes = [*needed, *shuffled[:distractors]]
        return tuple(_shuffled(listed_recipes, seeding.generator(self.seed, "textcraft order")))


def find(task_id: str) -> CraftingProblem:
    """The problem that an id names. Raises ValueError for an id of another world, version or game."""
    name, _, numbers = task_id.removeprefix(FAMILY).partition("/")
    wanted, _, number = numbers.partition("/")
    goal = name.replace("_", " ")
    if task_id.startswith(FAMILY) and goal in recipes() and wanted.isdecimal() and number.isdecimal():
        problem = CraftingProblem(goal, int(wanted), int(number))
        if problem.id == task_id and problem.wanted > 0:
            return problem
    raise ValueError(f"a task must be named {FAMILY}GOAL/WANTED/ROUND, where a recipe makes GOAL; found {task_id!r}")


def split_of(goal: str) -> Split:
    """The split that a goal belongs to."""
    draw = seeding.derive(0, "textcraft split", goal) % 10
    return "validation" if draw == 7 else "test" if draw > 7 else "train"


def goals(split: Split, depths: Sequence[int]) -> list[str]:
    """The goals of a split at these depths, in the game's order."""
    return [item for item in recipes() if depth(item) in depths and split_of(item) == split]


def problems(split: Split, depths: Sequence[int], most: int) -> Iterator[CraftingProblem]:
    """The problems of a split without end: goals in rounds, from 1 to `most` wanted of each."""
    items = goals(split, depths)
    number = 0
    while items:
        order = seeding.generator(0, "textcraft goals", split, number)
        for goal in _shuffled(items, order):
            wanted = 1 + seeding.derive(0, "textcraft wanted", goal, number) % most
            yield CraftingProblem(goal, wanted, number)
        number += 1


def _shuffled(things: Sequence[Thing], generator: np.random.Generator) -> list[Thing]:
    return [things[place] for place in generator.permutation(len(things))]
