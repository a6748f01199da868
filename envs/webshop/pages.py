"""The text of each place: short, with everything that can be clicked in square brackets.

Compact by default: titles and prices, and the wish on the search page only. The layout differs from WebShop's, whose
text is that of an HTML page with ` [SEP] ` between its parts; the same actions are possible on a page, except those on
reviews and pictures, which do not exist here.
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
    """Whether every page shows the wish, as WebShop's do, instead of only the search page."""


@dataclass(frozen=True)
class Page:
    """A text and the buttons in it."""

    text: str
    buttons: tuple[str, ...] = ()
    searchable: bool = False

    @property
    def legal(self) -> str:
        """The possible actions."""
        actions = ["search[QUERY]"] if self.searchable else [f"click[{button}]" for button in self.buttons]
        return ", ".join(actions)

    def button(self, text: str) -> str | None:
        """The button with this label, in any case; None if the page has no such button."""
        label = " ".join(text.casefold().split())
        return next((button for button in self.buttons if button.casefold() == label), None)


def show(place: Place, goal: Goal, shop: Shop, style: PageStyle) -> Page:
    """The page at a place. There is none after a purchase, since the episode is over."""
    if place.page == "search":
        return Page(f"{goal.instruction}.\nSearch the shop.", searchable=True)
    if place.page == "results":
        page = _results(place, shop, style)
    else:
        product = shop.products[place.product]
        page = _product(place, product, style) if place.page == "product" else _text_of(place, product)
    return Page(f"{goal.instruction}.\n{page.text}", page.buttons) if style.repeat_goal else page


def on_page(place: Place, style: PageStyle) -> tuple[str, ...]:
    """The results on the current page of results."""
    return place.results[(place.number - 1) * style.results_per_page : place.number * style.results_per_page]


def _results(place: Place, shop: Shop, style: PageStyle) -> Page:
    product_ids = on_page(place, style)
    pages = -(-len(place.results) // style.results_per_page)
    moves = [*([PREVIOUS] if place.number > 1 else []), *([NEXT] if place.number < pages else []), BACK_TO_SEARCH]
    heading = f"Page {place.number} of {pages}" if product_ids else "Nothing was found."
    products = [shop.products[name] for name in product_ids]
    lines = [f"[{product.id}] {product.title} {product.price_tag}" for product in products]
    return Page("\n".join((heading, *lines, _row(moves))), (*product_ids, *moves))


def _product(place: Place, product: Product, style: PageStyle) -> Page:
    moves = [*([DESCRIPTION, FEATURES] if style.description else []), BUY_NOW, PREVIOUS, BACK_TO_SEARCH]
    selected = dict(place.selected_options)
    lines = [f"{product.title} {product.price_tag}"]
    for name, values in product.options.items():
        heading = f"{name} ({selected[name]})" if name in selected else name
        lines.append(f"{heading}: {_row(values)}")
    options = (value for values in product.options.values() for value in values)
    return Page("\n".join((*lines, _row(moves))), (*options, *moves))


def _text_of(place: Place, product: Product) -> Page:
    moves = (PREVIOUS, BACK_TO_SEARCH)
    text = product.description if place.page == "description" else "\n".join(product.features)
    return Page(f"{text or 'Nothing is written here.'}\n{_row(moves)}", moves)


def _row(buttons: Sequence[str]) -> str:
    return " ".join(f"[{button}]" for button in buttons)
