"""The products of the shop, drawn from a seed so that no product is on sale in two splits.

A product is a colour, a material and a thing, such as `red oak lamp`. Each belongs to one split, by a digest of its
name, and a shop sells only products of its task's split: so all products of a test task, right answers or not, are new.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from itertools import product

from turnwise import seeding
from turnwise.world import SPLITS, Split

COLOURS = ("red", "blue", "green", "black", "white", "yellow", "grey", "brown", "pink", "purple", "silver", "golden")
MATERIALS = ("oak", "pine", "steel", "glass", "cotton", "leather", "paper", "stone", "bamboo", "copper", "wool", "clay")
THINGS = ("lamp", "chair", "table", "mug", "kettle", "clock", "vase", "basket", "blanket", "pillow", "mirror", "shelf")

THINGS_IN_A_SHOP = 4
PRODUCTS_OF_A_THING = 4

LOWEST, HIGHEST = 500, 20_000
"""Bounds of prices, in cents."""


@dataclass(frozen=True)
class CatalogueProduct:
    """A product on sale. `number` is its position in the catalogue, from 1; `price` is in cents."""

    number: int
    name: str
    thing: str
    price: int

    @property
    def shown_price(self) -> str:
        """The price as displayed, such as `$12.40`."""
        return dollars(self.price)


def dollars(cents: int) -> str:
    """An amount as displayed, such as `$12.40`."""
    return f"${cents // 100}.{cents % 100:02d}"


@cache
def names(split: Split) -> dict[str, tuple[str, ...]]:
    """Names of a split's products by thing: eight in ten belong to train, one each to validation and test."""
    names_by_thing: dict[str, tuple[str, ...]] = {}
    for thing in THINGS:
        every = [f"{colour} {material} {thing}" for colour, material in product(COLOURS, MATERIALS)]
        names_by_thing[thing] = tuple(name for name in every if _split(name) == split)
    return names_by_thing


def catalogue(seed: int, split: Split) -> tuple[CatalogueProduct, ...]:
    """The products of one shop, in the order in which pages list them. No two have the same price."""
    generator = seeding.generator(seed, "browser shop catalogue")
    things = [THINGS[place] for place in generator.choice(len(THINGS), size=THINGS_IN_A_SHOP, replace=False)]
    names_and_things: list[tuple[str, str]] = []
    for thing in things:
        pool = names(split)[thing]
        places = generator.choice(len(pool), size=PRODUCTS_OF_A_THING, replace=False)
        names_and_things += [(pool[place], thing) for place in places]
    order = generator.permutation(len(names_and_things))
    prices = LOWEST + generator.choice(HIGHEST - LOWEST, size=len(names_and_things), replace=False)
    return tuple(
        CatalogueProduct(number, names_and_things[place][0], names_and_things[place][1], int(price))
        for number, (place, price) in enumerate(zip(order, prices, strict=True), start=1)
    )


def _split(name: str) -> Split:
    tenth = seeding.derive(0, "browser shop split", name) % 10
    return SPLITS[0] if tenth < 8 else SPLITS[tenth - 7]
