"""What is missing on the way to the goal: the whole of the oracle's mind, and a thought that a small policy can follow.

Needs go down the recipe tree, the deepest product first. The need of an item is what all recipes above it use of it;
what is held counts against it; what is then missing, n of an item whose recipe makes c at once, takes ceil(n / c)
crafts, and so many times the recipe's ingredients. Surplus of one craft is held and so counts for the next.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from envs.textcraft.recipes import Recipe


def missing(goal: str, wanted: int, held: Mapping[str, int], recipes: Mapping[str, Recipe]) -> list[tuple[str, int]]:
    """What is missing of each item, from the goal down: `[("stick", 4), ("oak planks", 2), ("oak log", 1)]`.

    `recipes` has a recipe of every product of the goal's tree. Nothing is missing of the ingredients of the last item:
    it is the one to be crafted or taken next. The list is empty when the goal is held as often as wanted.
    """
    needed = Counter({goal: wanted})
    found = []
    for item in _from_the_goal_down(goal, recipes):
        lacking = needed[item] - held.get(item, 0)
        if lacking <= 0:
            continue
        found.append((item, lacking))
        if item in recipes:
            for ingredient, amount in recipes[item].ingredients:
                needed[ingredient] += amount * crafts(recipes[item], lacking)
    return found


def crafts(recipe: Recipe, amount: int) -> int:
    """How often a recipe must be used to make an amount."""
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
