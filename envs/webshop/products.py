"""What a product is, and what a customer may want of one."""

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
    """The words under which the shop files it, e.g. `raincoat`."""
    category: tuple[str, ...]
    """From the most general to the most special, e.g. `("fashion", "outerwear", "raincoat")`."""
    naming_words: tuple[str, ...]
    """The words of the title that say what kind of thing it is: by these two products are compared."""
    attributes: tuple[str, ...]
    options: Mapping[str, tuple[str, ...]]
    """By name, such as `color`, the values of which the customer may choose one."""
    description: str
    features: tuple[str, ...]

    @property
    def price_tag(self) -> str:
        """The price as it is shown, e.g. `$45` or `$45.50`."""
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
    """The words of the wish that say what is wanted."""
    attributes: tuple[str, ...]
    options: tuple[str, ...]
    """Values, such as `navy`."""
    price_limit: float | None
    """In dollars; None where any price will do."""

    @property
    def instruction(self) -> str:
        """What the customer says."""
        limit = "" if self.price_limit is None else f", price at most {dollars(self.price_limit)}"
        return self.wish + limit


def dollars(amount: float) -> str:
    """An amount as it is shown: cents only where there are any."""
    return f"${amount:.2f}".removesuffix(".00")
