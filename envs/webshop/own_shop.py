"""Our own shop: products and goals drawn from the word lists of `assortment`.

Product number n is drawn from its own random stream, so a smaller shop holds the first products of a larger one. A
title names the brand, all attributes and the product, in that order: a page of results shows everything that a goal
asks for, except the options, which are on the product's own page.
"""

from __future__ import annotations

from bisect import bisect_right

import numpy as np

from envs.webshop.assortment import BRANDS, DEPARTMENTS, OPTION_NAMES, OPTIONS, VALUES_OFFERED
from envs.webshop.products import Goal, Product
from envs.webshop.words import words
from turnwise import seeding

ATTRIBUTES_PER_PRODUCT = 3
ATTRIBUTES_PER_GOAL = 2
GOALS_PER_PRODUCT = 3
PRICE_STEP = 10
PRICE_STEPS = 4
"""A price limit is one of this many multiples of 10 dollars above the price, as in WebShop."""
_PRICES = tuple(float(step) for step in range(PRICE_STEP, 100 * PRICE_STEP, PRICE_STEP))


def own_products(count: int) -> list[Product]:
    """The first `count` products of the shop, which is unbounded."""
    return [_product(number) for number in range(count)]


def own_goals(products: list[Product]) -> list[Goal]:
    """Up to three goals for each product, in order; a goal that is worded like an earlier one is left out."""
    goals: dict[str, Goal] = {}
    for product in products:
        for number in range(GOALS_PER_PRODUCT):
            goal = _goal(product, number)
            goals.setdefault(goal.instruction, goal)
    return list(goals.values())


def price_limit(price: float, generator: np.random.Generator) -> float | None:
    """The higher of two drawn from the next four multiples of 10 dollars; None from 980 dollars on, as in WebShop."""
    first = bisect_right(_PRICES, price)
    above = _PRICES[first : first + PRICE_STEPS]
    if len(above) < 2:
        return None
    return above[int(generator.choice(len(above), 2, replace=False).max())]


def _product(number: int) -> Product:
    generator = seeding.generator(0, "webshop product", number)
    department = DEPARTMENTS[int(generator.integers(len(DEPARTMENTS)))]
    shelves = [(group, thing) for group, things in department.groups.items() for thing in things]
    group, thing = shelves[int(generator.integers(len(shelves)))]
    brand = BRANDS[int(generator.integers(len(BRANDS)))]
    attributes = _some(department.attributes, ATTRIBUTES_PER_PRODUCT, generator)
    note = department.notes[int(generator.integers(len(department.notes)))]
    return Product(
        id=f"B{number:04d}",
        title=" ".join((brand, *attributes, thing)),
        price=float(generator.integers(department.prices[0], department.prices[1] + 1)),
        query=thing,
        category=(department.name, group, thing),
        naming_words=tuple(words(thing)),
        attributes=attributes,
        options={
            OPTION_NAMES.get(kind, kind): _some(OPTIONS[kind], VALUES_OFFERED, generator) for kind in department.options
        },
        description=f"{thing.capitalize()} by {brand}. {note}",
        features=attributes,
    )


def _some(pool: tuple[str, ...], count: int, generator: np.random.Generator) -> tuple[str, ...]:
    """At most `count` different members of a pool, in the pool's order."""
    places = generator.choice(len(pool), min(count, len(pool)), replace=False)
    return tuple(pool[place] for place in sorted(places.tolist()))


def _goal(product: Product, number: int) -> Goal:
    name = f"{product.id}:{number}"
    generator = seeding.generator(0, "webshop goal", name)
    attributes = _some(product.attributes, ATTRIBUTES_PER_GOAL, generator)
    options = {option: values[int(generator.integers(len(values)))] for option, values in product.options.items()}
    description = f"{', '.join(attributes)} {product.query}"
    return Goal(
        id=name,
        product=product.id,
        wish=", ".join((f"Find me {description}", *(f"{option} {value}" for option, value in options.items()))),
        query=" ".join((*attributes, product.query, *options.values())),
        attributes=attributes,
        options=tuple(options.values()),
        price_limit=price_limit(product.price, generator),
    )
