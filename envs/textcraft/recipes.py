"""The recipes of Minecraft 1.19, one per item and without cycles: every goal is a tree with raw items as leaves.

The package holds 1,405 crafting recipes for 667 items. Some of them form cycles: a block of iron is made of nine
ingots and can be taken apart again. Here the items of `RAW` have no recipe; a recipe that would still close a cycle is
left out; and of the remaining alternatives (planks of nine woods make a stick) the one is kept whose ingredients come
first in the game's own numbering, so oak comes before birch and white before red. Items have their displayed names,
`oak planks` for the game's `oak_planks`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import minecraft_data

from turnwise import seeding

GAME_VERSION = "1.19"
FINGERPRINT = 4326646916270059686
"""Digest of all kept recipes. A different number means different data, under which task ids would name other tasks."""

RAW = (
    "coal",
    "copper ingot",
    "diamond",
    "dried kelp",
    "emerald",
    "gold ingot",
    "honey bottle",
    "iron ingot",
    "lapis lazuli",
    "raw copper",
    "raw gold",
    "raw iron",
    "redstone",
    "slime ball",
    "wheat",
)
"""Items whose recipes are dropped.

In the game they are mined, smelted, dried, gathered or grown, which no crafting recipe expresses; their crafting
recipes only take apart what was made of them. Without any one entry here, that item and all that is made of it could
not be crafted from raw items at all.
"""


@dataclass(frozen=True)
class Recipe:
    """Makes `count` of the product and uses up `ingredients`, pairs of an item and its number."""

    product: str
    count: int
    ingredients: tuple[tuple[str, int], ...]

    def command(self, times: int = 1) -> str:
        """The command that uses this recipe `times` times at once."""
        parts = ", ".join(amount_of(item, amount * times) for item, amount in self.ingredients)
        return f"craft {amount_of(self.product, self.count * times)} using {parts}"


def amount_of(item: str, amount: int) -> str:
    """Text such as `2 oak planks`: the game has one form for singular and plural."""
    return f"{amount} {item}"


@cache
def recipes() -> Mapping[str, Recipe]:
    """The recipe of every item that has one, by the item's name and in the game's order.

    Raises ValueError when the installed data differ from those that the task ids refer to.
    """
    numbers, alternatives = _game_data()
    recipe_by_product = {
        product: min(candidates, key=lambda recipe: [numbers[item] for item, _ in recipe.ingredients])
        for product, candidates in without_circles(alternatives).items()
    }
    fingerprint = seeding.derive(0, "textcraft recipes", *(recipe.command() for recipe in recipe_by_product.values()))
    if fingerprint != FINGERPRINT:
        raise ValueError(
            f"the recipes must be those of Minecraft {GAME_VERSION} in minecraft-data 3.20.0, with fingerprint "
            f"{FINGERPRINT}; found {fingerprint}: install that version"
        )
    return recipe_by_product


def without_circles(alternatives: Mapping[str, Sequence[Recipe]]) -> dict[str, list[Recipe]]:
    """The recipes without cycles, at least one for every product.

    A recipe is left out when one of its ingredients can be made of the product and needs a chain of crafts at least as
    long as the product's. Raises ValueError when a product cannot be reached from items without a recipe.
    """
    shortest = _shortest(alternatives)
    if unreachable := [product for product in alternatives if product not in shortest]:
        raise ValueError(f"every item must be reachable from raw items; these go in circles: {', '.join(unreachable)}")
    made_of = {product: _all_ingredients(product, alternatives) for product in alternatives}

    def closes_a_circle(recipe: Recipe) -> bool:
        return any(
            recipe.product in made_of.get(item, ()) and shortest[item] >= shortest[recipe.product]
            for item, _ in recipe.ingredients
        )

    return {
        product: [recipe for recipe in candidates if not closes_a_circle(recipe)]
        for product, candidates in alternatives.items()
    }


@cache
def depth(item: str) -> int:
    """The longest chain of crafts from raw items to this item: 0 for a raw item."""
    recipe = recipes().get(item)
    return 0 if recipe is None else 1 + max(depth(ingredient) for ingredient, _ in recipe.ingredients)


@cache
def tree(goal: str) -> tuple[Recipe, ...]:
    """The recipes needed to make the goal from raw items, by decreasing depth: the goal's own first."""
    alternatives = {product: (recipe,) for product, recipe in recipes().items()}
    products = [goal, *(item for item in _all_ingredients(goal, alternatives) if item in alternatives)]
    return tuple(recipes()[product] for product in sorted(products, key=lambda item: (-depth(item), item)))


def _game_data() -> tuple[dict[str, int], dict[str, list[Recipe]]]:
    """The game's number of every item, and all recipes of every item that is not in `RAW`."""
    data = minecraft_data(GAME_VERSION)
    names: dict[int, str] = {item["id"]: item["name"].replace("_", " ") for item in data.items_list}
    alternatives: dict[str, list[Recipe]] = {}
    for entry in (recipe for group in data.recipes.values() for recipe in group):
        product = names[entry["result"]["id"]]
        if product in RAW:
            continue
        rows = entry.get("inShape") or [entry["ingredients"]]
        filled = Counter(number for row in rows for number in row if number is not None)
        ingredients = tuple((names[number], filled[number]) for number in sorted(filled))
        alternatives.setdefault(product, []).append(Recipe(product, entry["result"]["count"], ingredients))
    return {name: number for number, name in names.items()}, alternatives


def _shortest(alternatives: Mapping[str, Sequence[Recipe]]) -> dict[str, int]:
    """The shortest chain of crafts to each item that can be reached."""
    products = [recipe for candidates in alternatives.values() for recipe in candidates]
    shortest = {item: 0 for recipe in products for item, _ in recipe.ingredients if item not in alternatives}
    crafts, before = 0, -1
    while len(shortest) > before:
        crafts, before = crafts + 1, len(shortest)
        reachable = [recipe.product for recipe in products if all(item in shortest for item, _ in recipe.ingredients)]
        for product in reachable:
            shortest.setdefault(product, crafts)
    return shortest


def _all_ingredients(product: str, alternatives: Mapping[str, Sequence[Recipe]]) -> dict[str, None]:
    """All direct and indirect ingredients of a product, each once and in a fixed order."""
    ingredients: dict[str, None] = {}
    frontier = [product]
    while frontier:
        for recipe in alternatives.get(frontier.pop(), ()):
            new = [item for item, _ in recipe.ingredients if item not in ingredients]
            ingredients.update(dict.fromkeys(new))
            frontier.extend(new)
    return ingredients
