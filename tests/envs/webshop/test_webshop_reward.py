from dataclasses import replace

import pytest

from envs.webshop.products import Goal, Product
from envs.webshop.reward import evaluate, has_attribute, is_promising, needed_options, type_score
from envs.webshop.words import significant

SHAMPOO = Product(
    id="B1",
    title="Tea Tree Shampoo",
    price=35.0,
    query="hair care",
    category=("beauty", "hair", "shampoo"),
    naming_words=("tea", "tree", "shampoo"),
    attributes=("tea tree", "essential oil", "natural ingredients"),
    options={"color": ("grey", "dark grey"), "size": ("large", "x-large")},
    description="Smells like lemons.",
    features=("No parabens",),
)
GOAL = Goal(
    id="B1:0",
    product="B1",
    wish="Find me a shampoo",
    query="shampoo",
    attributes=("tea tree", "essential oils", "natural ingredients"),
    options=("grey", "x-large"),
    price_limit=40.0,
)
CHOSEN = {"color": "grey", "size": "x-large"}


def score(product: Product = SHAMPOO, chosen: dict[str, str] = CHOSEN, goal: Goal = GOAL) -> float:
    return evaluate(product, chosen, goal, SHAMPOO).score


def test_all_that_was_wanted_scores_exactly_1() -> None:
    assert score() == 1.0


def test_each_wish_counts_the_same() -> None:
    # Three attributes, two options and the price: six wishes.
    assert score(chosen={"color": "grey"}) == pytest.approx(5 / 6)
    assert score(chosen={}) == pytest.approx(4 / 6)
    assert score(replace(SHAMPOO, price=40.01)) == pytest.approx(5 / 6)
    assert score(replace(SHAMPOO, price=40.0)) == 1.0
    assert score(replace(SHAMPOO, attributes=("tea tree",))) == pytest.approx(4 / 6)


def test_without_a_limit_any_price_is_right() -> None:
    assert score(replace(SHAMPOO, price=10_000.0), goal=replace(GOAL, price_limit=None)) == 1.0


def test_an_attribute_may_stand_in_the_title_the_features_or_the_description_as_whole_words() -> None:
    bare = replace(SHAMPOO, attributes=(), title="Soap with tea tree", features=("For skin",), description="Oily.")
    assert has_attribute(bare, "tea tree") and not has_attribute(bare, "oil")
    assert has_attribute(replace(bare, features=("No paraben", "Tea-Tree inside")), "tea tree")
    assert has_attribute(replace(bare, description="Made of natural ingredients."), "natural ingredients")


def test_a_size_must_be_equal_and_another_option_alike() -> None:
    assert score(chosen={"color": "dark grey", "size": "x-large"}) == 1.0
    assert score(chosen={"color": "grey", "size": "large"}) == pytest.approx(5 / 6)


def test_no_wish_is_met_twice() -> None:
    # The released code counts chosen options: two greys for one wish would be more than was asked for.
    wanted = replace(GOAL, options=("grey",))
    twice = {"color": "grey", "pattern": "dark grey"}
    assert evaluate(SHAMPOO, twice, wanted, SHAMPOO).options == 1
    assert score(chosen=twice, goal=wanted) == 1.0


def named(*naming: str, query: str = "other", category: tuple[str, ...] = ("a", "b", "c")) -> Product:
    return replace(SHAMPOO, naming_words=naming, query=query, category=category)


@pytest.mark.parametrize(
    ("bought", "expected"),
    [
        # Twenty naming words are wanted: w0 to w19.
        (named("w0", "w1", "w2", "w3", "w4"), 1.0),  # a quarter of them
        (named("w0", "w1", "w2", "w3"), 0.5),  # a fifth: not above 0.2, and nothing else is the same
        (named("w0", "w1", "w2", "w3", query="hats"), 1.0),  # filed under the same words
        (named("w0", "w1", "w2", "w3", category=("y", "x", "q")), 1.0),  # two categories, in any order
        (named("w0", "w1", "w2", "w3", category=("x", "x", "q")), 0.5),  # one category, named twice
        (named("w0", "w1"), 0.5),  # a tenth: not below 0.1
        (named("w0"), 0.1),
        (named("w0", query="hats", category=("x", "y", "z")), 0.1),  # too far in name, whatever else is the same
        (named("none"), 0.0),
        (named("none", query="hats", category=("x", "y", "z")), 0.0),
    ],
)
def test_the_type_score_by_hand(bought: Product, expected: float) -> None:
    target = named(*(f"w{number}" for number in range(20)), query="hats", category=("x", "y", "z"))
    assert type_score(bought, target) == expected


def test_the_type_score_multiplies_all_else() -> None:
    other = replace(SHAMPOO, naming_words=("bowl",))
    assert score(other) == 0.0
    near = replace(SHAMPOO, naming_words=("w0", "w1"), query="other", category=("a",))
    target = replace(SHAMPOO, naming_words=tuple(f"w{number}" for number in range(10)))
    # One of ten naming words would be 0.1, two are 0.2: half of four sixths.
    assert evaluate(near, {}, GOAL, target).score == pytest.approx(0.5 * 4 / 6)


def test_a_title_of_the_original_has_about_the_score_that_its_nouns_give() -> None:
    # WebShop's own test: 0.17 by spaCy's nouns. Ours: power and cord of thirteen words.
    goal = significant("Saireed UL Listed 2 Prong Power Cord for JBL Bar 3.1 Bar 2.1 Channel 4K Ultra HD Soundbar")
    bought = significant("BRST AC Power Cord Outlet Socket Cable Plug Lead for Panasonic SC-HT830V DVD Home Theater")
    assert len(goal) == 13 and [word for word in goal if word in bought] == ["power", "cord"]


def test_the_needed_options_are_exact_where_they_can_be_and_each_from_an_option_of_its_own() -> None:
    assert needed_options(SHAMPOO, GOAL) == CHOSEN
    assert needed_options(SHAMPOO, replace(GOAL, options=("dark grey",))) == {"color": "dark grey"}
    assert needed_options(SHAMPOO, replace(GOAL, options=())) == {}
    assert needed_options(SHAMPOO, replace(GOAL, options=("grey", "dark grey"))) is None
    assert needed_options(SHAMPOO, replace(GOAL, options=("small",))) is None


def test_a_product_is_promising_when_all_but_the_options_is_met() -> None:
    assert is_promising(replace(SHAMPOO, options={}), GOAL, SHAMPOO)
    assert not is_promising(replace(SHAMPOO, price=41.0), GOAL, SHAMPOO)
    assert not is_promising(replace(SHAMPOO, attributes=()), GOAL, SHAMPOO)
    assert not is_promising(replace(SHAMPOO, naming_words=("bowl",)), GOAL, SHAMPOO)
