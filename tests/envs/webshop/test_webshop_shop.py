from collections import Counter
from itertools import combinations, pairwise

import numpy as np
import pytest

from envs.webshop.assortment import BRANDS, DEPARTMENTS, OPTION_NAMES, OPTIONS
from envs.webshop.own_shop import own_goals, own_products, price_limit
from envs.webshop.products import dollars
from envs.webshop.reward import EXACT, evaluate, has_attribute, is_promising, needed_options, type_score
from envs.webshop.shop import MAXIMUM_RESULTS, own_shop, split_of
from envs.webshop.similarity import alike
from envs.webshop.words import holds, significant, words
from turnwise.world import SPLITS

SHOP = own_shop(600)
GOAL = "Find me keto friendly, plant based jerky, flavor cinnamon, price at most $70"
THINGS = [thing for department in DEPARTMENTS for things in department.groups.values() for thing in things]


# The word lists


def test_no_two_things_share_a_word_so_a_thing_is_of_its_own_kind_alone() -> None:
    named = [word for thing in THINGS for word in words(thing)]
    assert len(named) == len(set(named)) and len(THINGS) > 60


def test_no_two_attributes_and_no_two_values_of_an_option_count_as_the_same() -> None:
    attributes = sorted({attribute for department in DEPARTMENTS for attribute in department.attributes})
    assert len(attributes) > 90
    # Sizes are compared to the letter.
    by_likeness = [values for kind, values in OPTIONS.items() if OPTION_NAMES.get(kind) != EXACT]
    assert len(by_likeness) == 3
    for pool in (attributes, *by_likeness):
        assert not [pair for pair in combinations(pool, 2) if alike(*pair)]


def test_a_product_has_exactly_the_attributes_that_it_lists() -> None:
    # Otherwise the reward would find an attribute in a brand, a thing or a note that is not meant.
    for product in SHOP.products.values():
        for department in DEPARTMENTS:
            for attribute in department.attributes:
                assert has_attribute(product, attribute) == (attribute in product.attributes), (product, attribute)


def test_brands_and_things_are_no_words_of_attributes() -> None:
    attributes = {word for department in DEPARTMENTS for name in department.attributes for word in words(name)}
    assert not attributes & {word for name in (*BRANDS, *THINGS) for word in words(name)}


# Products and goals


def test_a_smaller_shop_holds_the_first_products_of_a_larger_one() -> None:
    assert own_products(40) == own_products(70)[:40]


def test_products_are_what_they_were_when_version_1_was_made() -> None:
    # Ids, titles and goals are promised to never change within version 1.
    product = own_products(1)[0]
    assert (product.id, product.title, product.price_tag) == (
        "B0000",
        "Kestrill keto friendly plant based dairy free jerky",
        "$33",
    )
    assert own_goals([product])[0].instruction == GOAL


def test_every_department_and_every_thing_is_sold() -> None:
    products = own_products(2000)
    assert {product.category[0] for product in products} == {department.name for department in DEPARTMENTS}
    counts = Counter(product.query for product in products)
    assert set(counts) == set(THINGS) and min(counts.values()) >= 10


def test_a_title_says_all_but_the_options() -> None:
    for product in SHOP.products.values():
        for part in (*product.attributes, product.query):
            assert holds(product.title, part)
        assert not any(holds(product.title, value) for values in product.options.values() for value in values)


def test_a_goal_is_met_by_its_product() -> None:
    for goal in SHOP.goals.values():
        product = SHOP.products[goal.product]
        assert is_promising(product, goal, product)
        choice = needed_options(product, goal)
        assert choice is not None and evaluate(product, choice, goal, product).score == 1.0


def test_a_goal_says_what_it_wants_and_asks_the_search_for_nothing_else() -> None:
    for goal in SHOP.goals.values():
        for wanted in (*goal.attributes, *goal.options, SHOP.products[goal.product].query):
            assert holds(goal.instruction, wanted)
        assert goal.price_limit is not None and dollars(goal.price_limit) in goal.instruction
        assert set(words(goal.query)) <= set(words(goal.wish))


def test_no_two_goals_are_worded_alike_and_no_product_is_wanted_in_two_splits() -> None:
    assert len({goal.instruction for goal in SHOP.goals.values()}) == len(SHOP.goals)
    wanted = {split: {goal.product for goal in SHOP.goals_of[split]} for split in SPLITS}
    for one, other in combinations(SPLITS, 2):
        assert not wanted[one] & wanted[other]
    assert sum(len(goals) for goals in SHOP.goals_of.values()) == len(SHOP.goals)
    assert all(split_of(name) == split for split, names in wanted.items() for name in names)


def test_a_shop_of_thousands_has_thousands_of_goals() -> None:
    assert len(own_shop(4000).goals) > 11_000
    assert len(own_shop(4000).goals_of["test"]) > 2_000


def test_the_limit_is_the_higher_of_two_of_the_next_four_multiples_of_ten() -> None:
    drawn = [price_limit(45.0, np.random.default_rng(seed)) for seed in range(300)]
    # The higher of two of 50, 60, 70, 80: never 50; 60, 70 and 80 with probabilities 1/6, 2/6 and 3/6.
    counts = Counter(drawn)
    assert set(counts) == {60.0, 70.0, 80.0}
    assert counts[60.0] < counts[70.0] < counts[80.0]
    assert price_limit(50.0, np.random.default_rng(0)) in (70.0, 80.0, 90.0)
    assert price_limit(975.0, np.random.default_rng(0)) == 990.0
    assert price_limit(980.0, np.random.default_rng(0)) is None


def test_the_type_score_of_our_own_shop_is_all_or_nothing() -> None:
    products = list(SHOP.products.values())[:150]
    for one, other in combinations(products, 2):
        assert type_score(one, other) == (1.0 if one.query == other.query else 0.0)


# The search engine


def test_results_have_a_word_of_the_query_and_the_best_come_first() -> None:
    found = SHOP.search("Raincoat, waterproof!")
    assert found
    first = SHOP.products[found[0]]
    assert holds(first.title, "raincoat") and holds(first.title, "waterproof")
    for name in found:
        assert {"raincoat", "waterproof"} & set(words(SHOP.products[name].title))


def test_the_results_are_the_first_fifty_in_order_of_score_and_then_of_the_catalogue() -> None:
    for query in ("free", "navy large", "free free black", "small red wireless"):
        scores = SHOP._index.get_scores(words(query))
        order = np.lexsort((np.arange(len(scores)), -scores))[:MAXIMUM_RESULTS]
        assert list(SHOP.search(query)) == [SHOP._ids[place] for place in order if scores[place] > 0]
    assert len(SHOP.search("free")) == MAXIMUM_RESULTS


@pytest.mark.parametrize("query", ["", "?!", "zzzqqq", "\x00"])
def test_nothing_is_found_by_words_that_nothing_has(query: str) -> None:
    assert SHOP.search(query) == ()


def test_options_can_be_searched_for() -> None:
    product = next(product for product in SHOP.products.values() if "scent" in product.options)
    scent = product.options["scent"][0]
    assert any(scent in SHOP.products[name].options.get("scent", ()) for name in SHOP.search(scent)[:3])


def test_the_words_of_titles_are_in_order_and_significant_words_are_different() -> None:
    assert all(one < other for one, other in pairwise(SHOP.title_words))
    assert significant("I am looking for a RED, red shirt 3 x 42") == ["red", "shirt"]
