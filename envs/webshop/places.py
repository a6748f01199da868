"""Where a customer can be in the shop, and where each button leads."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from envs.webshop.products import Product
from turnwise import seeding

BACK_TO_SEARCH, PREVIOUS, NEXT = "Back to Search", "< Prev", "Next >"
DESCRIPTION, FEATURES, BUY_NOW = "Description", "Features", "Buy Now"
BUTTONS = (BACK_TO_SEARCH, PREVIOUS, NEXT, DESCRIPTION, FEATURES, BUY_NOW)
"""WebShop's; every other button is a product's id or the value of an option."""

PageName = Literal["search", "results", "product", "description", "features", "bought"]


@dataclass(frozen=True)
class Place:
    """A page, and how it was reached as far as that matters for where it leads."""

    page: PageName = "search"
    results: tuple[str, ...] = ()
    """The ids that the last search found, best first."""
    number: int = 1
    """Of the page of results."""
    product: str = ""
    """The id of the product that is looked at."""
    chosen: tuple[tuple[str, str], ...] = ()
    """Names and values of the options that are chosen, by name."""

    @property
    def state(self) -> str:
        """A name that two places have only if they are the same."""
        results = seeding.derive(0, "webshop results", *self.results)
        chosen = ", ".join(f"{name} {value}" for name, value in self.chosen)
        return f"{self.page} {self.product} ({chosen}) of {results:x}, page {self.number}"


def follow(place: Place, button: str, product: Product | None) -> Place:
    """Where a button of this place leads. `product`: the one that is looked at, if any.

    As in WebShop, the way back from a product to the results forgets the options that were chosen.
    """
    if button == BACK_TO_SEARCH:
        return Place()
    if button == NEXT:
        return replace(place, number=place.number + 1)
    if button == PREVIOUS:
        return _back(place)
    if button == BUY_NOW:
        return replace(place, page="bought")
    if button == DESCRIPTION:
        return replace(place, page="description")
    if button == FEATURES:
        return replace(place, page="features")
    if product is None:
        return replace(place, page="product", product=button)
    name = next(name for name, values in product.options.items() if button in values)
    return replace(place, chosen=tuple(sorted({**dict(place.chosen), name: button}.items())))


def _back(place: Place) -> Place:
    if place.page == "results":
        return replace(place, number=place.number - 1)
    if place.page == "product":
        return replace(place, page="results", product="", chosen=())
    return replace(place, page="product")
