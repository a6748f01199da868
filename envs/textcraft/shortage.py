"""The items still missing for the goal: all that the oracle needs, and a thought that a small policy can follow.

Needs propagate down the recipe tree, the deepest product first. The need of an item is the sum of what all recipes
above it use; held items count against it; if n are then missing of an item whose recipe makes c at once, that takes
ceil(n / c) crafts, and as many times the recipe's ingredients. The surplus of a craft is held and counts for later
ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from envs.textcraft.recipes import Recipe


def missing(
    goal: str, wanted: int, inventory: Mapping[str, int], recipes: Mapping[str, Recipe]
) -> list[tuple[str, int]]:
    """Missing number of each item, from the goal down: `[("stick", 4), ("oak planks", 2), ("oak log", 1)]`.

    `recipes` has a recipe for every product of the goal's tree. The ingredients of the last item are all held: it is
    the one to craft or take next. The list is empty when enough of the goal is held.
    """
    needed = Counter({goal: wanted})
    shortage = []
    for item in _from_the_goal_down(goal, recipes):
        lacking = needed[item] - inventory.get(item, 0)
        if lacking <= 0:
            continue
        shortage.append((item, lacking))
        if item in recipes:
            for ingredient, amount in recipes[item].ingredients:
                needed[ingredient] += amount * crafts(recipes[item], lacking)
    return shortage


def crafts(recipe: Recipe, amount: int) -> int:
    """How many times a recipe must be used to make an amount."""
    return -(-amount // recipe.count)


def _from_the_goal_down(goal: str, recipes: Mapping[str, Recipe]) -> list[str]:
    """The items of the goal's tree, each before all of its ingredients."""
    depths: dict[str, int] = {}

    def depth(item: str) -> int:
        if item not in depths:
            below = recipes[item].ingredients if item in recipes else ()
            depths[item] = 1 + max((depth(ingredient) for ingredient, _ in below), default=-1)
        return depths[item]

    depth(goal)
    return sorted(depths, key=lambda item: (-depths[item], item))
