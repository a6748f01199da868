"""Products, and the goals that a customer may have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Product:
    """One product of the shop, at one price."""

    id: str
    title: str
    price: float
    """In dollars."""
    query: str
    """The words under which the shop files it, such as `raincoat`."""
    category: tuple[str, ...]
    """From the most general to the most specific, such as `("fashion", "outerwear", "raincoat")`."""
    naming_words: tuple[str, ...]
    """The words of the title that name the kind of product; the reward compares products by these."""
    attributes: tuple[str, ...]
    options: Mapping[str, tuple[str, ...]]
    """Values of each option by its name, such as `color`; the customer may choose one of each."""
    description: str
    features: tuple[str, ...]

    @property
    def price_tag(self) -> str:
        """The price as displayed, such as `$45` or `$45.50`."""
        return dollars(self.price)


@dataclass(frozen=True)
class Goal:
    """What a customer wants: a product with these attributes and options, at no more than this price."""

    id: str
    product: str
    """The id of a product that meets the goal."""
    wish: str
    """The instruction without the price."""
    query: str
    """The significant words of the wish."""
    attributes: tuple[str, ...]
    options: tuple[str, ...]
    """Values, such as `navy`."""
    price_limit: float | None
    """In dollars; None where any price is acceptable."""

    @property
    def instruction(self) -> str:
        """The customer's request: the wish and the price limit."""
        limit = "" if self.price_limit is None else f", price at most {dollars(self.price_limit)}"
        return self.wish + limit


def dollars(amount: float) -> str:
    """An amount as displayed, with cents only if there are any."""
    return f"${amount:.2f}".removesuffix(".00")
