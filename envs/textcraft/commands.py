"""The grammar: `get N ITEM`, `craft N ITEM using N ITEM, N ITEM` and `inventory`, in any case."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

LEGAL = "get N ITEM; craft N ITEM using N ITEM, N ITEM; inventory"

_AMOUNT = re.compile(r"([1-9][0-9]{0,3}) (.+)")


@dataclass(frozen=True)
class Get:
    """Take an item that no recipe makes."""

    item: str
    amount: int


@dataclass(frozen=True)
class Craft:
    """Use a recipe, one or more times at once."""

    product: str
    amount: int
    ingredients: Mapping[str, int]


@dataclass(frozen=True)
class Inventory:
    """List the items held."""


def read(action: str) -> Get | Craft | Inventory | None:
    """The command in a text, or None if it does not have the form of one. Numbers are from 1 to 9999.

    Whether such an item or recipe exists is not checked. An ingredient that is named twice counts twice.
    """
    text = " ".join(action.lower().split())
    verb, _, rest = text.partition(" ")
    if text == "inventory":
        return Inventory()
    if verb == "get":
        amount = _amount(rest)
        return amount and Get(*amount)
    return _craft(rest) if verb == "craft" else None


def _craft(text: str) -> Craft | None:
    output, _, used = text.partition(" using ")
    amounts = [_amount(part.strip()) for part in (output, *used.split(","))]
    known = [each for each in amounts if each is not None]
    if len(known) < len(amounts):
        return None
    (product, amount), *parts = known
    ingredients: Counter[str] = Counter()
    for item, number in parts:
        ingredients[item] += number
    return Craft(product, amount, ingredients)


def _amount(text: str) -> tuple[str, int] | None:
    """Item and number from a text such as `2 oak planks`; None if it has another form."""
    match = _AMOUNT.fullmatch(text)
    return (match[2], int(match[1])) if match else None
