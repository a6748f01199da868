"""One episode (a customer with a wish walks through the shop until something is bought), and its baseline policies."""

from __future__ import annotations

import numpy as np

from envs.webshop.pages import Page, PageStyle, on_page, show
from envs.webshop.places import BACK_TO_SEARCH, BUY_NOW, NEXT, PREVIOUS, Place, follow
from envs.webshop.products import Goal, Product
from envs.webshop.reward import evaluate, is_promising, needed_options
from envs.webshop.shop import Shop
from envs.webshop.words import words
from turnwise.world import Environment, Observation, Remaining, ScriptedAction, Step

RANDOM_WORDS = 2
"""Number of words in a random query."""


class ShopEnvironment(Environment):
    """One episode. Nothing in it is random."""

    def __init__(self, shop: Shop, goal: Goal, style: PageStyle) -> None:
        self._shop = shop
        self._goal = goal
        self._style = style
        self._target = shop.products[goal.product]
        self._place = Place()
        self._opened: set[str] = set()  # ids of products whose page was shown
        self._solved = False

    def reset(self) -> Observation:
        """The search page, with the wish."""
        return self._observe(self._page.text)

    def step(self, action: str) -> Step:
        """Play `search[QUERY]` or `click[BUTTON]`; other text changes nothing and is answered with the legal actions.

        A search is possible only on the search page, as in WebShop's paper; the released environment allows one
        anywhere.
        """
        if self._place.page == "bought":
            return self._refuse("The episode is over.")
        page = self._page
        verb, bracket, rest = action.strip().partition("[")
        verb = verb.strip().lower()
        if bracket != "[" or not rest.endswith("]") or verb not in ("search", "click"):
            return self._refuse(f"Not an action. Legal: {page.legal}.")
        if verb == "search":
            if not page.searchable or not words(rest):
                return self._refuse(f"Not possible here. Legal: {page.legal}.")
            return self._go(Place("results", self._shop.search(rest)), {"searches": 1.0})
        button = page.button(rest[:-1])
        if button is None:
            return self._refuse(f"Not shown here. Legal: {page.legal}.")
        place = follow(self._place, button, self._shop.products.get(self._place.product))
        return self._buy(place) if place.page == "bought" else self._go(place, {})

    def oracle(self, remaining: Remaining) -> ScriptedAction:
        """Search the words of the wish, open the first promising result, choose the wanted options, and buy.

        A promising result is of the right kind, has the attributes and is cheap enough: in our own shop its line says
        so; in another catalogue the oracle knows the texts without opening them. It leaves a product that turns out to
        lack the options. In its last turn it buys the product that it is looking at.
        """
        if self._place.page == "search":
            return ScriptedAction("search what is wanted", (f"search[{self._goal.query}]",))
        if self._place.page == "results":
            return self._browse()
        if self._place.page != "product":
            return ScriptedAction("back to the product", (f"click[{PREVIOUS}]",))
        if remaining.turns <= 1:
            return ScriptedAction("buy, it is the last turn", (f"click[{BUY_NOW}]",))
        return self._choose(self._shop.products[self._place.product])

    def random(self, generator: np.random.Generator, remaining: Remaining) -> ScriptedAction:
        """A uniformly random button; on the search page two words, each uniform over all that titles have."""
        page = self._page
        if page.searchable:
            title_words = self._shop.title_words
            query = " ".join(title_words[place] for place in generator.integers(len(title_words), size=RANDOM_WORDS))
            return ScriptedAction("a random query", (f"search[{query}]",))
        button = page.buttons[int(generator.integers(len(page.buttons)))]
        return ScriptedAction("a random button", (f"click[{button}]",))

    def _browse(self) -> ScriptedAction:
        """On a page of results: open a promising one, turn the page towards one, or search again."""
        for number, name in enumerate(on_page(self._place, self._style), start=1):
            if self._is_worth_opening(name):
                return ScriptedAction(f"result {number} fits", (f"click[{name}]",))
        places = [place for place, name in enumerate(self._place.results) if self._is_worth_opening(name)]
        if not places:
            return ScriptedAction("search again", (f"click[{BACK_TO_SEARCH}]",))
        is_ahead = places[0] >= self._place.number * self._style.results_per_page
        return ScriptedAction("look further", (f"click[{NEXT if is_ahead else PREVIOUS}]",))

    def _choose(self, product: Product) -> ScriptedAction:
        """On a product's page: choose the next wanted option, and buy when all are chosen."""
        choice = needed_options(product, self._goal) if self._is_promising(product) else None
        if choice is None:
            return ScriptedAction("not what is wanted", (f"click[{PREVIOUS}]",))
        selected = dict(self._place.selected_options)
        for name, value in choice.items():
            if selected.get(name) != value:
                return ScriptedAction(f"choose {name} {value}", (f"click[{value}]",))
        return ScriptedAction("all is chosen" if choice else "nothing to choose", (f"click[{BUY_NOW}]",))

    def _is_worth_opening(self, name: str) -> bool:
        """Whether a result is promising and was not already seen to lack a wanted option."""
        product = self._shop.products[name]
        return self._is_promising(product) and (
            name not in self._opened or needed_options(product, self._goal) is not None
        )

    def _is_promising(self, product: Product) -> bool:
        return is_promising(product, self._goal, self._target)

    @property
    def _page(self) -> Page:
        return show(self._place, self._goal, self._shop, self._style)

    def _go(self, place: Place, metrics: dict[str, float]) -> Step:
        effective = place != self._place
        self._place = place
        if place.page == "product":
            self._opened.add(place.product)
        return Step(self._observe(self._page.text), effective=effective, metrics=metrics)

    def _buy(self, place: Place) -> Step:
        product, selected = self._shop.products[place.product], dict(place.selected_options)
        evaluation = evaluate(product, selected, self._goal, self._target)
        self._place = place
        self._solved = evaluation.score == 1
        metrics = {
            "bought": 1.0,
            "type_score": evaluation.type_score,
            "attributes_matched": float(evaluation.attributes),
            "options_matched": float(evaluation.options),
            "price_matched": float(evaluation.price),
        }
        text = f"Bought {product.id} for {product.price_tag}. Score: {evaluation.score:.2f}."
        rewards = {"score": evaluation.score, "solved": float(self._solved)}
        return Step(self._observe(text), rewards, True, success=self._solved, metrics=metrics)

    def _refuse(self, text: str) -> Step:
        over = self._place.page == "bought"
        return Step(self._observe(text), terminated=over, valid=False, effective=False, success=self._solved)

    def _observe(self, text: str) -> Observation:
        return Observation(text, state=f"{self._goal.id}: {self._place.state}")


def turns_needed(shop: Shop, goal: Goal, results_per_page: int) -> int | None:
    """Number of turns in which the oracle meets a goal; None if its search finds no product that meets the goal."""
    target = shop.products[goal.product]
    opened_in_vain = 0
    for place, name in enumerate(shop.search(goal.query)):
        product = shop.products[name]
        if not is_promising(product, goal, target):
            continue
        choice = needed_options(product, goal)
        if choice is not None:
            search, pages_turned, opened, bought = 1, place // results_per_page, 1, 1
            return search + pages_turned + 2 * opened_in_vain + opened + len(choice) + bought
        opened_in_vain += 1
    return None
