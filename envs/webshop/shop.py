"""A shop: products and goals together, the search engine over them, and the split that a goal belongs to.

The search engine is BM25 (Lucene's variant, by bm25s) over title, description, first feature and options, as in
WebShop. Products of equal score come in the order of the catalogue, and one that shares no word with the query is no
result.
"""

from __future__ import annotations

import functools
import hashlib
import logging
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from envs.webshop.original_files import read_goals, read_products
from envs.webshop.own_shop import own_goals, own_products
from envs.webshop.products import Goal, Product
from envs.webshop.words import words
from turnwise import seeding
from turnwise.world import SPLITS, Split

MAXIMUM_RESULTS = 50
"""Limit on the results of one search, over all its pages, as in WebShop."""
LONGEST_QUERY = 64
"""Limit on the words of a query; the rest is ignored, so that no query is slow."""


class Shop:
    """Products, goals and the index. `name` permanently identifies the data: it is part of every task's id."""

    def __init__(self, name: str, products: Sequence[Product], goals: Sequence[Goal]) -> None:
        import bm25s  # imported here: it takes seconds where numba is installed, and only a shop needs it

        logging.getLogger("bm25s").setLevel(logging.WARNING)  # bm25s sets it to DEBUG

        self.name = name
        self.products: Mapping[str, Product] = {product.id: product for product in products}
        self.goals: Mapping[str, Goal] = {goal.id: goal for goal in goals}
        self._ids = tuple(self.products)
        self._index = bm25s.BM25(backend="numpy")
        self._index.index([words(_indexed(product)) for product in products], show_progress=False)
        self.title_words = tuple(sorted({word for product in products for word in words(product.title)}))
        """Every word that occurs in a title, sorted."""
        self.goals_of: Mapping[Split, tuple[Goal, ...]] = {split: _in_split(split, goals) for split in SPLITS}
        """The goals of each split, in a seeded order."""

    def search(self, query: str) -> tuple[str, ...]:
        """Ids of the best products for a query, best first: at most 50."""
        terms = words(query)[:LONGEST_QUERY]
        if not terms:
            return ()
        scores = self._index.get_scores(terms)
        results: list[str] = []
        while len(results) < MAXIMUM_RESULTS and scores[best := int(scores.argmax())] > 0:  # on ties the first
            results.append(self._ids[best])
            scores[best] = 0
        return tuple(results)


def split_of(product: str) -> Split:
    """The split of a product's goals, by a digest of its id, in the shares 7 train, 1 validation, 2 test."""
    draw = seeding.derive(0, "webshop split", product) % 10
    return "train" if draw < 7 else "validation" if draw == 7 else "test"


def _in_split(split: Split, goals: Sequence[Goal]) -> tuple[Goal, ...]:
    split_goals = [goal for goal in goals if split_of(goal.product) == split]
    return tuple(sorted(split_goals, key=lambda goal: seeding.derive(0, "webshop order", goal.id)))


_building = threading.Lock()


def own_shop(count: int) -> Shop:
    """Our own shop with this many products, built once per process, also when many threads ask at once."""
    with _building:
        return _own_shop(count)


@functools.cache
def _own_shop(count: int) -> Shop:
    products = own_products(count)
    return Shop(f"own-{count}", products, own_goals(products))


def shop_from_files(catalogue: Path, goals: Path, attributes: Path | None, count: int | None) -> Shop:
    """The shop of WebShop's own files, or of others in their layout, read once per process. See `original_files`."""
    with _building:
        return _shop_from_files(catalogue, goals, attributes, count)


@functools.cache
def _shop_from_files(catalogue: Path, goals: Path, attributes: Path | None, count: int | None) -> Shop:
    products = read_products(catalogue, attributes, count)
    shop_goals = read_goals(goals, products)
    name = f"files-{_digest([path for path in (catalogue, goals, attributes) if path is not None])}"
    return Shop(name if count is None else f"{name}-{count}", products, shop_goals)


def _digest(paths: Sequence[Path]) -> str:
    """Digest of the content of the files, in this order."""
    digests = []
    for path in paths:
        with path.open("rb") as file:
            digests.append(hashlib.file_digest(file, "sha256").hexdigest())
    return hashlib.sha256(" ".join(digests).encode()).hexdigest()[:12]


def _indexed(product: Product) -> str:
    options = (f"{name} {' '.join(values)}" for name, values in product.options.items())
    return " ".join((product.title, product.description, *product.features[:1], *options))
