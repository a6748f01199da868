"""The recipes of Minecraft 1.19: one per item, without circles, so that every goal is a tree with raw items as leaves.

The package holds 1,405 crafting recipes for 667 items. In the game some of them go in circles, since a block of iron
is nine ingots and can be taken apart again. Here the items of `RAW` have no recipe; a recipe that would still close a
circle is left out; and of the alternatives that remain (planks of nine woods make a stick) the one stands whose
ingredients come first in the game's own numbering, so that oak comes before birch and white before red. Items are
named as they are shown, `oak planks` for the game's `oak_planks`.
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
"""Of every recipe that is kept. Another number means other data, and then task ids would name other tasks."""

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
"""Items whose recipes are dropped. The game has them mined, smelted, dried, gathered or grown, which no crafting recipe
says; the recipes that it has for them only take apart what was made of them. Were any one of these missing here,
it and all that is made of it could not be crafted from raw items at all."""


@dataclass(frozen=True)
class Recipe:
    """`count` of the product for `ingredients`, which are used up: pairs of an item and how many of it."""

    product: str
    count: int
    ingredients: tuple[tuple[str, int], ...]

    def command(self, times: int = 1) -> str:
        """The command that uses this recipe so many times at once."""
        parts = ", ".join(amount_of(item, amount * times) for item, amount in self.ingredients)
        return f"craft {amount_of(self.product, self.count * times)} using {parts}"


def amount_of(item: str, amount: int) -> str:
    """`2 oak planks`: the game has one form for one and for many."""
    return f"{amount} {item}"


@cache
def recipes() -> Mapping[str, Recipe]:
    """The recipe of every item that has one, by the item's name and in the game's order.

    Raises ValueError when the installed data are not those that the task ids name.
    """
    numbers, alternatives = _game_data()
    chosen = {
        product: min(kept, key=lambda recipe: [numbers[item] for item, _ in recipe.ingredients])
        for product, kept in without_circles(alternatives).items()
    }
    found = seeding.derive(0, "textcraft recipes", *(recipe.command() for recipe in chosen.values()))
    if found != FINGERPRINT:
        raise ValueError(
            f"the recipes must be those of Minecraft {GAME_VERSION} in minecraft-data 3.20.0, with fingerprint "
            f"{FINGERPRINT}; found {found}: install that version"
        )
    return chosen


def without_circles(alternatives: Mapping[str, Sequence[Recipe]]) -> dict[str, list[Recipe]]:
    """The recipes that lead from raw items to products and never back; at least one for every product.

    A recipe is left out when one of its ingredients can be made of the product and takes no fewer crafts on end to
    reach than the product. Raises ValueError when a product cannot be reached from items without a recipe.
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
        product: [recipe for recipe in known if not closes_a_circle(recipe)] for product, known in alternatives.items()
    }


@cache
def depth(item: str) -> int:
    """The longest chain of crafts that leads from raw items to this one: 0 for a raw item."""
    recipe = recipes().get(item)
    return 0 if recipe is None else 1 + max(depth(ingredient) for ingredient, _ in recipe.ingredients)


@cache
def tree(goal: str) -> tuple[Recipe, ...]:
    """The recipes that it takes to make the goal from raw items, the goal's own first and the deepest product first."""
    known = {product: (recipe,) for product, recipe in recipes().items()}
    products = [goal, *(item for item in _all_ingredients(goal, known) if item in known)]
    return tuple(recipes()[product] for product in sorted(products, key=lambda item: (-depth(item), item)))


def _game_data() -> tuple[dict[str, int], dict[str, list[Recipe]]]:
    """The game's number of every item, and every recipe of every item that is not in `RAW`."""
    data = minecraft_data(GAME_VERSION)
    names: dict[int, str] = {item["id"]: item["name"].replace("_", " ") for item in data.items_list}
    alternatives: dict[str, list[Recipe]] = {}
    for written in (recipe for group in data.recipes.values() for recipe in group):
        product = names[written["result"]["id"]]
        if product in RAW:
            continue
        rows = written.get("inShape") or [written["ingredients"]]
        filled = Counter(number for row in rows for number in row if number is not None)
        ingredients = tuple((names[number], filled[number]) for number in sorted(filled))
        alternatives.setdefault(product, []).append(Recipe(product, written["result"]["count"], ingredients))
    return {name: number for number, name in names.items()}, alternatives


def _shortest(alternatives: Mapping[str, Sequence[Recipe]]) -> dict[str, int]:
    """The fewest crafts on end that lead to an item, for every item that can be reached."""
    products = [recipe for known in alternatives.values() for recipe in known]
    found = {item: 0 for recipe in products for item, _ in recipe.ingredients if item not in alternatives}
    crafts, before = 0, -1
    while len(found) > before:
        crafts, before = crafts + 1, len(found)
        reached = [recipe.product for recipe in products if all(item in found for item, _ in recipe.ingredients)]
        for product in reached:
            found.setdefault(product, crafts)
    return found


def _all_ingredients(product: str, alternatives: Mapping[str, Sequence[Recipe]]) -> dict[str, None]:
    """What the product can be made of, its ingredients' ingredients included, each once and in a fixed order."""
    found: dict[str, None] = {}
    frontier = [product]
    while frontier:
        for recipe in alternatives.get(frontier.pop(), ()):
            new = [item for item, _ in recipe.ingredients if item not in found]
            found.update(dict.fromkeys(new))
            frontier.extend(new)
    return found
