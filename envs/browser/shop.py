"""A small shop of several pages, made for this world: search, categories, products, comments and a cart.

A shop is the state of one episode: its catalogue, the content of its cart, and the posted comments. `respond` is its
web server: a function of that state and the request, without clock or randomness.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

from envs.browser.catalogue import CatalogueProduct, dollars
from envs.browser.loopback import NOT_FOUND, PageRequest, Response, page, redirect

VERSION = "1"
"""Version of catalogue and pages: part of every task's id."""
HOST = "shop.test"
COOKIE = "shop"

MOST_IN_CART = 99
LONGEST_COMMENT = 300


@dataclass(frozen=True)
class Comment:
    """A comment on a product."""

    product: int
    text: str


class BrowserShop:
    """One shop, as one customer sees and changes it."""

    def __init__(self, products: Sequence[CatalogueProduct]) -> None:
        self.products = tuple(products)
        self.cart: dict[int, int] = {}
        """Quantity of each product by its number, in the order in which they were added."""
        self.comments: list[Comment] = []
        self._pages: dict[tuple[str, str], Callable[[PageRequest], Response]] = {
            ("GET", "/"): self._home,
            ("GET", "/search"): self._search,
            ("GET", "/category"): self._category,
            ("GET", "/product"): self._product,
            ("GET", "/cart"): self._cart,
            ("POST", "/cart/add"): self._add,
            ("POST", "/cart/remove"): self._remove,
            ("POST", "/comment"): self._comment,
        }

    def respond(self, request: PageRequest) -> Response:
        """The page at the path, or "not found"."""
        handler = self._pages.get((request.method, request.path))
        return NOT_FOUND if handler is None else handler(request)

    def find(self, number: str) -> CatalogueProduct | None:
        """The product with that number, or None."""
        return next((product for product in self.products if str(product.number) == number), None)

    def _home(self, request: PageRequest) -> Response:
        things = list(dict.fromkeys(product.thing for product in self.products))
        links = [f'<li><a href="/category?thing={thing}">{thing}s</a></li>' for thing in things]
        return self._page("Shop", f"<h2>Categories</h2><ul>{''.join(links)}</ul>")

    def _search(self, request: PageRequest) -> Response:
        words = request.query.get("q", "").lower().split()
        hits = [product for product in self.products if words and all(word in product.name.split() for word in words)]
        links = [f"<li>{_link(product)}</li>" for product in hits]
        content = f"<ul>{''.join(links)}</ul>" if links else "<p>Nothing was found.</p>"
        return self._page("Search results", content)

    def _category(self, request: PageRequest) -> Response:
        thing = request.query.get("thing", "")
        products = [product for product in self.products if product.thing == thing]
        if not products:
            return NOT_FOUND
        rows = [f"<tr><td>{_link(product)}</td><td>{product.shown_price}</td></tr>" for product in products]
        return self._page(f"{thing.capitalize()}s", f"<table>{''.join(rows)}</table>")

    def _product(self, request: PageRequest) -> Response:
        product = self.find(request.query.get("number", ""))
        if product is None:
            return NOT_FOUND
        number = f'<input type="hidden" name="number" value="{product.number}">'
        items = [f"<li>{escape(comment.text)}</li>" for comment in self.comments if comment.product == product.number]
        comments = f"<ul>{''.join(items)}</ul>" if items else "<p>No comments yet.</p>"
        return self._page(
            product.name,
            f"<p>Price: {product.shown_price}</p>"
            f'<form method="post" action="/cart/add">{number}<label>Quantity <input name="quantity" value="1"></label>'
            "<button>Add to cart</button></form>"
            f"<h2>Comments</h2>{comments}"
            f'<form method="post" action="/comment">{number}'
            '<label>Your comment <textarea name="text"></textarea></label><button>Post comment</button></form>',
        )

    def _cart(self, request: PageRequest) -> Response:
        rows, total = [], 0
        for product in self.products:
            quantity = self.cart.get(product.number, 0)
            if quantity:
                total += quantity * product.price
                rows.append(
                    f"<li>{quantity} x {_link(product)} {dollars(quantity * product.price)}"
                    '<form method="post" action="/cart/remove">'
                    f'<input type="hidden" name="number" value="{product.number}"><button>Remove</button></form></li>'
                )
        content = f"<ul>{''.join(rows)}</ul><p>Total: {dollars(total)}</p>" if rows else "<p>The cart is empty.</p>"
        return self._page("Cart", content)

    def _add(self, request: PageRequest) -> Response:
        product, quantity = self.find(request.form.get("number", "")), request.form.get("quantity", "").strip()
        if product is None:
            return NOT_FOUND
        if not re.fullmatch("[1-9][0-9]?", quantity):
            return self._page("Cart", f"<p>The quantity must be a number from 1 to {MOST_IN_CART}.</p>{_link(product)}")
        self.cart[product.number] = min(self.cart.get(product.number, 0) + int(quantity), MOST_IN_CART)
        return redirect("/cart")

    def _remove(self, request: PageRequest) -> Response:
        product = self.find(request.form.get("number", ""))
        if product is None:
            return NOT_FOUND
        self.cart.pop(product.number, None)
        return redirect("/cart")

    def _comment(self, request: PageRequest) -> Response:
        product, text = self.find(request.form.get("number", "")), " ".join(request.form.get("text", "").split())
        if product is None:
            return NOT_FOUND
        if not 1 <= len(text) <= LONGEST_COMMENT:
            hint = f"<p>A comment must have 1 to {LONGEST_COMMENT} characters.</p>"
            return self._page("Comment", f"{hint}{_link(product)}")
        self.comments.append(Comment(product.number, text))
        return redirect(f"/product?number={product.number}")

    def _page(self, title: str, content: str) -> Response:
        inside = sum(self.cart.values())
        return page(
            f'<!DOCTYPE html><html lang="en"><head><title>{escape(title)}</title><link rel="icon" href="data:,"></head>'
            '<body><nav><a href="/">Home</a> '
            f'<a href="/cart">Cart ({inside})</a> <form action="/search"><label>Search <input name="q"></label>'
            f"<button>Go</button></form></nav><h1>{escape(title)}</h1>{content}</body></html>"
        )


class ShopSite:
    """The shops of all episodes as one site: a cookie selects the shop that a browser context sees."""

    def __init__(self) -> None:
        self._shops: dict[str, BrowserShop] = {}
        self._opened = 0
        self._lock = threading.Lock()

    def open(self, shop: BrowserShop) -> str:
        """Register a shop and return the value of its cookie."""
        with self._lock:
            self._opened += 1
            key = str(self._opened)
            self._shops[key] = shop
        return key

    def close(self, key: str) -> None:
        """Remove a shop."""
        self._shops.pop(key, None)

    def __len__(self) -> int:
        return len(self._shops)

    def __call__(self, request: PageRequest) -> Response:
        """Response of the shop that the cookie selects."""
        shop = self._shops.get(request.cookies.get(COOKIE, ""))
        return NOT_FOUND if shop is None else shop.respond(request)


def _link(product: CatalogueProduct) -> str:
    return f'<a href="/product?number={product.number}">{product.name}</a>'
