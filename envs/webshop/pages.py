"""What each place shows: a short text in which everything that can be clicked stands in square brackets.

Compact by default: titles and prices, the wish on the search page only. The layout differs from WebShop's, whose text
is that of an HTML page with ` [SEP] ` between its parts; what can be done on a page is the same, but for reviews and
pictures, which there are none of.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from envs.webshop.places import BACK_TO_SEARCH, BUY_NOW, DESCRIPTION, FEATURES, NEXT, PREVIOUS, Place
from envs.webshop.products import Goal, Product
from envs.webshop.shop import Shop


@dataclass(frozen=True)
class PageStyle:
    """How much a page shows."""

    results_per_page: int
    description: bool
    """Whether a product has pages with its description and its features."""
    repeat_goal: bool
    """Whether every page shows what is wanted, as WebShop's do, and not only the search page."""


@dataclass(frozen=True)
class Page:
    """A text, and the buttons that stand in it."""

    text: str
    buttons: tuple[str, ...] = ()
    searchable: bool = False

    @property
    def legal(self) -> str:
        """What can be done here, as actions."""
        actions = ["search[QUERY]"] if self.searchable else [f"click[{button}]" for button in self.buttons]
        return ", ".join(actions)

    def button(self, text: str) -> str | None:
        """The button that a text names, in capitals or not; None when none is shown that is named so."""
        named = " ".join(text.casefold().split())
        return next((button for button in self.buttons if button.casefold() == named), None)


def show(place: Place, goal: Goal, shop: Shop, style: PageStyle) -> Page:
    """The page at a place. What was bought is not a page: the episode is over."""
    if place.page == "search":
        return Page(f"{goal.instruction}.\nSearch the shop.", searchable=True)
    if place.page == "results":
        page = _results(place, shop, style)
    else:
        product = shop.products[place.product]
        page = _product(place, product, style) if place.page == "product" else _text_of(place, product)
    return Page(f"{goal.instruction}.\n{page.text}", page.buttons) if style.repeat_goal else page


def on_page(place: Place, style: PageStyle) -> tuple[str, ...]:
    """The results that stand on this page of them."""
    return place.results[(place.number - 1) * style.results_per_page : place.number * style.results_per_page]


def _results(place: Place, shop: Shop, style: PageStyle) -> Page:
    shown = on_page(place, style)
    pages = -(-len(place.results) // style.results_per_page)
    moves = [*([PREVIOUS] if place.number > 1 else []), *([NEXT] if place.number < pages else []), BACK_TO_SEARCH]
    heading = f"Page {place.number} of {pages}" if shown else "Nothing was found."
    products = [shop.products[name] for name in shown]
    lines = [f"[{product.id}] {product.title} {product.price_tag}" for product in products]
    return Page("\n".join((heading, *lines, _row(moves))), (*shown, *moves))


def _product(place: Place, product: Product, style: PageStyle) -> Page:
    moves = [*([DESCRIPTION, FEATURES] if style.description else []), BUY_NOW, PREVIOUS, BACK_TO_SEARCH]
    chosen = dict(place.chosen)
    lines = [f"{product.title} {product.price_tag}"]
    for name, values in product.options.items():
        heading = f"{name} ({chosen[name]})" if name in chosen else name
        lines.append(f"{heading}: {_row(values)}")
    options = (value for values in product.options.values() for value in values)
    return Page("\n".join((*lines, _row(moves))), (*options, *moves))


def _text_of(place: Place, product: Product) -> Page:
    moves = (PREVIOUS, BACK_TO_SEARCH)
    text = product.description if place.page == "description" else "\n".join(product.features)
    return Page(f"{text or 'Nothing is written here.'}\n{_row(moves)}", moves)


def _row(buttons: Sequence[str]) -> str:
    return " ".join(f"[{button}]" for button in buttons)
