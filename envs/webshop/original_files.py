"""Products and goals from WebShop's own files (github.com/princeton-nlp/WebShop), or from others in their layout.

    catalogue    items_shuffle.json      [{asin, name, query, product_category, full_description, small_description,
                                           pricing, customization_options, ...}, ...]
    goals        items_human_ins.json    {asin: [{instruction, instruction_attributes, instruction_options}, ...]}
    attributes   items_ins_v2.json       {asin: {attributes: [...]}}, optional

Differs from the released loader: where a product has a range of prices, the one price that counts is drawn by a digest
of its asin instead of separately in each process, and is shown instead of the range; a goal's limit is drawn the same
way. An option value that repeats one of an earlier option of the product, or that is worded like a button, is shown
with its option's name, so that every button is unique. Square brackets become round ones, since they mark buttons here.
A goal that is worded like an earlier one is left out, as is one without attributes or without its product.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from envs.webshop.own_shop import price_limit
from envs.webshop.places import BUTTONS
from envs.webshop.products import Goal, Product
from envs.webshop.words import significant, words
from turnwise import seeding

LONGEST_ASIN = 10
UNPRICED = 100.0
"""Price in dollars that WebShop charges where none is known."""


def read_products(catalogue: Path, attributes: Path | None, count: int | None) -> list[Product]:
    """The products of the first `count` items, each asin once. Raises ValueError for another layout."""
    items = _json(catalogue)
    if not isinstance(items, list) or not items:
        raise ValueError(f"catalogue must hold a list of items as items_shuffle.json does; {catalogue} does not")
    mined = {} if attributes is None else _by_asin(attributes, "attributes", "items_ins_v2.json")
    products: dict[str, Product] = {}
    for place, item in enumerate(items[:count]):
        try:
            asin = str(item["asin"])
            if asin != "nan" and len(asin) <= LONGEST_ASIN:
                products.setdefault(asin.casefold(), _product(item, mined.get(asin, {}).get("attributes", ())))
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise ValueError(
                f"every item of the catalogue must have the fields of items_shuffle.json; item {place} of {catalogue} "
                f"has not: {type(error).__name__}: {error}"
            ) from error
    return list(products.values())


def read_goals(path: Path, products: Sequence[Product]) -> list[Goal]:
    """The goals for these products, in the products' order. Raises ValueError for another layout."""
    instructions = _by_asin(path, "goals", "items_human_ins.json")
    goals: dict[str, Goal] = {}
    for product in products:
        for number, entry in enumerate(instructions.get(product.id, ())):
            try:
                goal = _goal(product, number, entry)
            except (KeyError, TypeError, AttributeError) as error:
                raise ValueError(
                    f"every goal must have the fields of items_human_ins.json; number {number} of {product.id} in "
                    f"{path} has not: {type(error).__name__}: {error}"
                ) from error
            if goal.attributes:
                goals.setdefault(" ".join(words(goal.wish)), goal)
    if not goals:
        raise ValueError(f"goals must hold instructions for products of the catalogue; {path} holds none")
    return list(goals.values())


def _product(item: Mapping[str, Any], attributes: Sequence[str]) -> Product:
    title = _clean(item["name"])
    features = item["small_description"]
    return Product(
        id=str(item["asin"]),
        title=title,
        price=_price(str(item["asin"]), item.get("pricing")),
        query=_clean(item["query"]).casefold(),
        category=tuple(part.strip() for part in item["product_category"].split("›")),
        naming_words=tuple(significant(title)),
        attributes=tuple(_clean(attribute).casefold() for attribute in attributes),
        options=_options(item["customization_options"] or {}),
        description=_clean(item["full_description"] or ""),
        features=tuple(_clean(feature) for feature in (features if isinstance(features, list) else [features or ""])),
    )


def _price(asin: str, pricing: str | None) -> float:
    """Price in dollars: the only one given, or one drawn uniformly between the first two, in whole cents."""
    prices = [float(re.sub(r"[^\d.]", "", part)) for part in (pricing or "").split("$")[1:]]
    if len(prices) < 2:
        return prices[0] if prices else UNPRICED
    low, high = sorted(prices[:2])
    return round(float(seeding.generator(0, "webshop price", asin).uniform(low, high)), 2)


def _options(option_lists: Mapping[str, Sequence[Mapping[str, Any]] | None]) -> dict[str, tuple[str, ...]]:
    used_labels = {button.casefold() for button in BUTTONS}
    options: dict[str, tuple[str, ...]] = {}
    for name, contents in option_lists.items():
        title = _clean(name).casefold()
        values = dict.fromkeys(_clean(content["value"]).replace("/", " | ").casefold() for content in contents or ())
        labels = dict.fromkeys(f"{title} {value}" if value in used_labels else value for value in values if value)
        if labels:
            options[title] = tuple(labels)
            used_labels.update(labels)
    return options


def _goal(product: Product, number: int, entry: Mapping[str, Any]) -> Goal:
    name = f"{product.id}:{number}"
    wish = _clean(entry["instruction"]).rstrip(".")
    options = entry["instruction_options"]
    values = options.values() if isinstance(options, dict) else options
    return Goal(
        id=name,
        product=product.id,
        wish=wish,
        query=" ".join(significant(wish)),
        attributes=tuple(_clean(attribute).casefold() for attribute in entry["instruction_attributes"]),
        options=tuple(_clean(value).replace("/", " | ").casefold() for value in values),
        price_limit=price_limit(product.price, seeding.generator(0, "webshop price limit", name)),
    )


def _clean(text: str) -> str:
    """Text with single spaces, and round brackets for square ones."""
    return " ".join(text.replace("[", "(").replace("]", ")").split())


def _by_asin(path: Path, parameter: str, original: str) -> dict[str, Any]:
    content = _json(path)
    if not isinstance(content, dict):
        raise ValueError(f"{parameter} must hold an object by asin as {original} does; {path} does not")
    return content


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except ValueError as error:
        raise ValueError(f"{path} must hold JSON; it does not: {error}") from error
