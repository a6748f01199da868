"""The customer's possible positions in the shop, and where each button leads."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from envs.webshop.products import Product
from turnwise import seeding

BACK_TO_SEARCH, PREVIOUS, NEXT = "Back to Search", "< Prev", "Next >"
DESCRIPTION, FEATURES, BUY_NOW = "Description", "Features", "Buy Now"
BUTTONS = (BACK_TO_SEARCH, PREVIOUS, NEXT, DESCRIPTION, FEATURES, BUY_NOW)
"""WebShop's fixed buttons; every other button is a product's id or the value of an option."""

PageName = Literal["search", "results", "product", "description", "features", "bought"]


@dataclass(frozen=True)
class Place:
    """A page, and as much of its history as determines where its buttons lead."""

    page: PageName = "search"
    results: tuple[str, ...] = ()
    """Product ids that the last search found, best first."""
    number: int = 1
    """Number of the current page of results, from 1."""
    product: str = ""
    """Id of the product being viewed."""
    selected_options: tuple[tuple[str, str], ...] = ()
    """(name, value) of the chosen options, sorted by name."""

    @property
    def state(self) -> str:
        """Name of the place, equal only for equal places."""
        results = seeding.derive(0, "webshop results", *self.results)
        options = ", ".join(f"{name} {value}" for name, value in self.selected_options)
        return f"{self.page} {self.product} ({options}) of {results:x}, page {self.number}"


def follow(place: Place, button: str, product: Product | None) -> Place:
    """The place to which a button of this place leads. `product`: the one being viewed, if any.

    As in WebShop, going back from a product to the results forgets the options that were chosen.
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
    return replace(place, selected_options=tuple(sorted({**dict(place.selected_options), name: button}.items())))


def _back(place: Place) -> Place:
    if place.page == "results":
        return replace(place, number=place.number - 1)
    if place.page == "product":
        return replace(place, page="results", product="", selected_options=())
    return replace(place, page="product")
