"""Problems in the shop: find a price, compare prices, fill a cart, post a comment. All end with `stop`.

Success is determined by the shop's own state and by the answer given to `stop`, never by what a page says.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from playwright.async_api import BrowserContext, Page

from envs.browser.catalogue import CatalogueProduct, catalogue
from envs.browser.problem import PageProblem, PageVerdict
from envs.browser.reading import Element, PageReading
from envs.browser.shop import COOKIE, HOST, BrowserShop, Comment, ShopSite
from turnwise import seeding
from turnwise.world import ScriptedAction, Split

KINDS = ("price", "cart", "comment", "cheapest")
ADDRESS = f"http://{HOST}/"

OPENINGS = ("Works", "Looks good", "Arrived", "Packed", "Made", "Bought", "Used", "Cleaned")
MANNERS = ("as described", "without a scratch", "with care", "in a week", "for a friend", "at once", "as a gift")


@dataclass(frozen=True)
class ShopOrder:
    """What a problem asks for: a product, and how many of it or which comment."""

    kind: str
    product: CatalogueProduct
    quantity: int = 1
    comment: str = ""

    @property
    def goal(self) -> str:
        """The goal in words."""
        name = self.product.name
        return {
            "price": f"What does the {name} cost? Stop with the price.",
            "cart": f"Put {self.quantity} x {name} into the cart and nothing else, then stop.",
            "comment": f'Post the comment "{self.comment}" on the page of the {name}, then stop.',
            "cheapest": f"Which {self.product.thing} costs least? Stop with its name.",
        }[self.kind]


def draw_order(kind: str, products: Sequence[CatalogueProduct], seed: int) -> ShopOrder:
    """The order that a task's seed draws."""
    generator = seeding.generator(seed, "browser shop order")
    product = products[int(generator.integers(len(products)))]
    if kind == "cheapest":
        alike = [other for other in products if other.thing == product.thing]
        product = min(alike, key=lambda other: other.price)
    opening = OPENINGS[int(generator.integers(len(OPENINGS)))]
    manner = MANNERS[int(generator.integers(len(MANNERS)))]
    return ShopOrder(kind, product, int(generator.integers(1, 4)), f"{opening} {manner}")


class ShopProblem(PageProblem):
    """One order in a shop of its own, all of whose pages are allowed."""

    starts = (ADDRESS,)
    sites = (ADDRESS.rstrip("/"),)

    def __init__(self, site: ShopSite, kind: str, seed: int, split: Split) -> None:
        self.shop = BrowserShop(catalogue(seed, split))
        self.order = draw_order(kind, self.shop.products, seed)
        self.goal = self.order.goal
        self._site = site
        self._key: str | None = None

    async def prepare(self, context: BrowserContext) -> None:
        """Open the shop, and give the browser context its cookie."""
        self._key = self._site.open(self.shop)
        await context.add_cookies([{"name": COOKIE, "value": self._key, "url": ADDRESS}])

    async def judge(self, page: Page, answer: str) -> PageVerdict:
        """Solved if the answer, or the state of the shop, is exactly what was asked for."""
        return PageVerdict(self.is_solved(answer))

    def is_solved(self, answer: str) -> bool:
        """Whether a `stop` with this answer would solve the problem now."""
        order, text = self.order, " ".join(answer.split()).lower()
        if order.kind == "price":
            return text.removeprefix("$") == order.product.shown_price.removeprefix("$")
        if order.kind == "cheapest":
            return text == order.product.name
        if order.kind == "cart":
            return self.shop.cart == {order.product.number: order.quantity}
        return self.shop.comments == [Comment(order.product.number, order.comment)]

    def hidden(self) -> str:
        """The content of the cart and the posted comments."""
        return repr((sorted(self.shop.cart.items()), self.shop.comments))

    def oracle(self, reading: PageReading, address: str) -> ScriptedAction:
        """Search for the product, or open its category, and carry out the order there."""
        path = address.removeprefix(ADDRESS)
        if self.order.kind == "cheapest":
            return self._compare(reading, path)
        if self.order.kind in ("cart", "comment") and self.is_solved(""):
            return ScriptedAction("all is done", ("stop [done]",))
        if self.order.kind == "cart" and self.shop.cart:
            return self._empty_the_cart(reading, path)
        if path != f"product?number={self.order.product.number}":
            return self._go_to_the_product(reading)
        if self.order.kind == "price":
            price = self.order.product.shown_price
            return ScriptedAction(f"the price is {price}", (f"stop [{price}]",))
        return self._order(reading) if self.order.kind == "cart" else self._post(reading)

    def close(self) -> None:
        """Close the shop."""
        if self._key is not None:
            self._site.close(self._key)

    def _compare(self, reading: PageReading, path: str) -> ScriptedAction:
        thing, name = self.order.product.thing, self.order.product.name
        if path == f"category?thing={thing}":
            return ScriptedAction(f"the {name} costs least", (f"stop [{name}]",))
        if (link := _find(reading, "link", f"{thing}s")) is not None:
            return ScriptedAction(f"look at the {thing}s", (f"click [{link.number}]",))
        return _go_home(reading)

    def _go_to_the_product(self, reading: PageReading) -> ScriptedAction:
        name = self.order.product.name
        if (link := _find(reading, "link", name)) is not None:
            return ScriptedAction(f"open the {name}", (f"click [{link.number}]",))
        if (search := _find(reading, "textbox", "Search")) is not None:
            return ScriptedAction(f"search for the {name}", (f"type [{search.number}] [{name}] [1]",))
        return _go_home(reading)

    def _empty_the_cart(self, reading: PageReading, path: str) -> ScriptedAction:
        if path == "cart" and (button := _find(reading, "button", "Remove")) is not None:
            return ScriptedAction("the cart holds something else, remove it", (f"click [{button.number}]",))
        return ScriptedAction("the cart holds something else, look at it", (f"goto [{ADDRESS}cart]",))

    def _order(self, reading: PageReading) -> ScriptedAction:
        quantity, button = _find(reading, "textbox", "Quantity"), _find(reading, "button", "Add to cart")
        amount = str(self.order.quantity)
        if quantity is not None and quantity.value != amount:
            return ScriptedAction(f"the quantity is {amount}", (f"type [{quantity.number}] [{amount}] [0]",))
        return (
            _go_home(reading)
            if button is None
            else ScriptedAction("put it into the cart", (f"click [{button.number}]",))
        )

    def _post(self, reading: PageReading) -> ScriptedAction:
        if self.shop.comments:
            return ScriptedAction("another comment was posted, which cannot be undone", ("stop [N/A]",))
        field, button = _find(reading, "textbox", "Your comment"), _find(reading, "button", "Post comment")
        comment = self.order.comment
        if field is not None and field.value != comment:
            return ScriptedAction("write the comment", (f"type [{field.number}] [{comment}] [0]",))
        return _go_home(reading) if button is None else ScriptedAction("post it", (f"click [{button.number}]",))


def _find(reading: PageReading, role: str, name: str) -> Element | None:
    matches = (element for element in reading.elements if element.role == role and element.name == name)
    return next(matches, None)


def _go_home(reading: PageReading) -> ScriptedAction:
    return ScriptedAction("go back to the home page", (f"goto [{ADDRESS}]",))
