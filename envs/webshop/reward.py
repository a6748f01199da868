"""How well a purchase meets a goal: WebShop's reward (Yao et al. 2022, section 3).

    r = r_type * ( |attributes matched| + |options matched| + [price <= limit] ) / ( |attributes| + |options| + 1 )

counts what the goal asks for. With t the share of the naming words of the goal's product that the bought one has,

    r_type = 0    if t = 0
             0.1  if t < 0.1
             0.5  if t <= 0.2, the two are filed under different words and share fewer than two categories
             1    otherwise.

An attribute is matched when it is similar to one of the product's (see `similarity`) or when the title, features or
description contain it; an option when a chosen value is similar to it, or equal to it where the option is a size.

Differs from the released code: naming words are all significant words of a title instead of the nouns that a spaCy
model finds (in our own shop, the one or two words that name the product); a text must contain an attribute as whole
words, where the released code also matches inside another word; the options of the goal are counted, each once, where
the released code counts chosen options, so that two chosen ones could match the same wish and the reward exceed 1; a
wanted option does not count as met because a chosen value is in the title; colours are not first mapped to basic ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from envs.webshop.products import Goal, Product
from envs.webshop.similarity import alike
from envs.webshop.words import holds

EXACT = "size"
"""Name of the option whose value must be equal: `large` is not `x-large`."""
SHARED_CATEGORIES = 2


@dataclass(frozen=True)
class PurchaseEvaluation:
    """How much of a goal a purchase meets."""

    attributes: int
    options: int
    price: bool
    type_score: float
    requirements: int
    """Number of requirements: attributes, options and the price."""

    @property
    def score(self) -> float:
        """The reward, from 0 to 1; exactly 1 when everything is met."""
        return self.type_score * ((self.attributes + self.options + int(self.price)) / self.requirements)


def evaluate(product: Product, selected: Mapping[str, str], goal: Goal, target: Product) -> PurchaseEvaluation:
    """Evaluation of buying `product` with `selected` options (value by name), for a goal that `target` would meet."""
    return PurchaseEvaluation(
        attributes=sum(has_attribute(product, attribute) for attribute in goal.attributes),
        options=sum(any(_is_met(option, name, value) for name, value in selected.items()) for option in goal.options),
        price=is_affordable(product, goal),
        type_score=type_score(product, target),
        requirements=len(goal.attributes) + len(goal.options) + 1,
    )


def is_promising(product: Product, goal: Goal, target: Product) -> bool:
    """Whether a product meets all of a goal except perhaps the options: its kind, the attributes and the price."""
    if not is_affordable(product, goal) or type_score(product, target) < 1:
        return False
    return all(has_attribute(product, attribute) for attribute in goal.attributes)


def needed_options(product: Product, goal: Goal) -> dict[str, str] | None:
    """The product's options, value by name, that a goal asks for; None if the product does not offer them all."""
    choice: dict[str, str] = {}
    for option in goal.options:
        offers = [(name, value) for name, values in product.options.items() if name not in choice for value in values]
        fitting = [offer for offer in offers if _is_met(option, *offer)]
        if not fitting:
            return None
        name, value = next((offer for offer in fitting if offer[1] == option), fitting[0])
        choice[name] = value
    return choice


def type_score(product: Product, target: Product) -> float:
    """Similarity in kind between a product and the wanted one: 0, 0.1, 0.5 or 1."""
    target_words = set(target.naming_words)
    # Without a noun 0.2, as in WebShop.
    overlap = len(target_words & set(product.naming_words)) / len(target_words) if target_words else 0.2
    if overlap == 0:
        return 0.0
    if overlap < 0.1:
        return 0.1
    categories = len(set(product.category) & set(target.category))
    is_near = product.query == target.query or categories >= SHARED_CATEGORIES or overlap > 0.2
    return 1.0 if is_near else 0.5


def has_attribute(product: Product, attribute: str) -> bool:
    """Whether a product has an attribute, by its list of attributes or by its texts."""
    if any(alike(own, attribute) for own in product.attributes):
        return True
    return any(holds(text, attribute) for text in (product.title, *product.features, product.description))


def is_affordable(product: Product, goal: Goal) -> bool:
    """Whether the price is within the goal's limit."""
    return goal.price_limit is None or product.price <= goal.price_limit


def _is_met(option: str, name: str, value: str) -> bool:
    return value == option or (name != EXACT and alike(value, option))
