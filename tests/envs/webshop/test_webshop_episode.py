import re

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from envs.webshop import WebShop
from envs.webshop.episode import RANDOM_WORDS, ShopEnvironment, turns_needed
from envs.webshop.pages import PageStyle
from envs.webshop.products import Goal, Product
from envs.webshop.shop import Shop
from turnwise import seeding
from turnwise.world import Remaining


def product(number: int, title: str, price: float, colors: tuple[str, ...], thing: str = "kettle") -> Product:
    return Product(
        id=f"K{number}",
        title=title,
        price=price,
        query=thing,
        category=("kitchen", thing),
        naming_words=(thing,),
        attributes=tuple(word for word in ("quiet", "quick") if word in title),
        options={"color": colors, "size": ("small", "large")},
        description=f"{thing} number {number}.",
        features=("boils", "keeps warm"),
    )


SHOP = Shop(
    "by-hand",
    [
        product(0, "plain kettle", 20.0, ("red", "blue")),
        product(1, "quiet quick kettle", 90.0, ("red", "blue")),
        product(2, "quiet quick kettle deluxe", 30.0, ("blue",)),
        product(3, "quiet quick kettle with a lid", 31.5, ("red", "blue")),
        product(4, "quick toaster", 12.0, ("red",), thing="toaster"),
    ],
    goals := [
        Goal("K3:0", "K3", "A quiet, quick kettle in red", "quiet quick kettle", ("quiet", "quick"), ("red",), 40.0)
    ],
)
GOAL = goals[0]
COMPACT = PageStyle(results_per_page=2, description=False, repeat_goal=False)
FULL = PageStyle(results_per_page=10, description=True, repeat_goal=True)


def begin(*actions: str, style: PageStyle = COMPACT) -> ShopEnvironment:
    environment = ShopEnvironment(SHOP, GOAL, style)
    environment.reset()
    for action in actions:
        assert environment.step(action).valid, action
    return environment


def remaining(turns: int) -> Remaining:
    return Remaining(turns, 1, turns)


def play(environment: ShopEnvironment, turns: int = 20) -> list[str]:
    actions = []
    for left in range(turns, 0, -1):
        (action,) = environment.oracle(remaining(left)).actions
        actions.append(action)
        step = environment.step(action)
        assert step.valid
        if step.terminated:
            assert step.success
            return actions
    raise AssertionError(f"nothing was bought in {turns} turns: {actions}")


# Pages


def test_the_search_page_shows_the_wish() -> None:
    assert begin().reset().text == "A quiet, quick kettle in red, price at most $40.\nSearch the shop."


def test_a_page_of_results_shows_ids_titles_and_prices() -> None:
    # K1 is the shortest text with all three words, K2 and K3 are longer; K0 and K4 have one word each.
    step = begin().step("search[Quiet quick KETTLE]")
    assert step.observation.text == (
        "Page 1 of 3\n[K1] quiet quick kettle $90\n[K2] quiet quick kettle deluxe $30\n[Next >] [Back to Search]"
    )
    assert step.valid and step.effective and not step.terminated
    assert step.metrics == {"searches": 1.0} and step.rewards == {}


def test_pages_can_be_turned_forth_and_back() -> None:
    environment = begin("search[quiet quick kettle]")
    first = environment._observe(environment._page.text)
    second = environment.step("click[next >]").observation
    assert second.text.startswith("Page 2 of 3\n[K3] quiet quick kettle with a lid $31.50\n")
    assert second.text.endswith("[< Prev] [Next >] [Back to Search]")
    assert environment.step("click[Next >]").observation.text.endswith("\n[< Prev] [Back to Search]")
    environment.step("click[< Prev]")
    assert environment.step("click[< PREV]").observation == first


def test_a_product_shows_its_options_and_those_that_are_chosen() -> None:
    environment = begin("search[kettle lid]", "click[k3]")
    step = environment.step("click[ Red ]")
    assert step.observation.text == (
        "quiet quick kettle with a lid $31.50\ncolor (red): [red] [blue]\nsize: [small] [large]\n"
        "[Buy Now] [< Prev] [Back to Search]"
    )
    assert "color (blue)" in environment.step("click[blue]").observation.text


def test_choosing_again_what_is_chosen_changes_nothing() -> None:
    environment = begin("search[kettle lid]", "click[K3]")
    first = environment.step("click[red]")
    again = environment.step("click[red]")
    assert first.effective and not again.effective and again.valid
    assert again.observation == first.observation


def test_leaving_a_product_forgets_the_options() -> None:
    environment = begin("search[kettle lid]", "click[K3]", "click[red]", "click[< Prev]")
    assert "color: [red]" in environment.step("click[K3]").observation.text


def test_the_order_in_which_options_are_chosen_does_not_matter() -> None:
    one = begin("search[kettle lid]", "click[K3]", "click[red]").step("click[large]")
    other = begin("search[kettle lid]", "click[K3]", "click[large]").step("click[red]")
    assert one.observation == other.observation


def test_the_full_style_has_pages_of_text_and_repeats_the_wish() -> None:
    environment = begin("search[kettle lid]", "click[K3]", style=FULL)
    description = environment.step("click[description]").observation.text
    assert description == (
        "A quiet, quick kettle in red, price at most $40.\nkettle number 3.\n[< Prev] [Back to Search]"
    )
    product_page = environment.step("click[< Prev]").observation.text
    assert "[Description] [Features] [Buy Now]" in product_page
    assert "boils\nkeeps warm" in environment.step("click[features]").observation.text


def test_the_compact_style_has_no_pages_of_text() -> None:
    step = begin("search[kettle lid]", "click[K3]").step("click[description]")
    assert not step.valid


def test_back_to_search_leads_to_the_search_page_from_anywhere() -> None:
    start = begin().reset()
    for way in (("search[kettle]",), ("search[kettle]", "click[K0]"), ("search[kettle]", "click[K0]", "click[red]")):
        assert begin(*way).step("click[back to search]").observation == start


def test_what_stands_in_square_brackets_can_be_clicked_and_nothing_else() -> None:
    world = WebShop(products=200, description=True, results_per_page=4)
    for task in world.tasks("train", 5):
        generator = seeding.generator(0, "walk", task.id)
        environment = world.make(task, 0)
        text, path = environment.reset().text, []
        for _ in range(25):
            offered = re.findall(r"\[(.*?)\]", text)
            assert tuple(offered) == environment._page.buttons
            for button in offered:
                copy = world.make(task, 0)
                copy.reset()
                for action in path:
                    copy.step(action)
                assert copy.step(f"click[{button}]").valid
            ways = [button for button in offered if button != "Buy Now"]
            search = environment.oracle(remaining(5)).actions[0]
            action = f"click[{ways[int(generator.integers(len(ways)))]}]" if ways else search
            path.append(action)
            text = environment.step(action).observation.text


# Buying


def test_buying_what_is_wanted_ends_with_success() -> None:
    environment = begin("search[kettle lid]", "click[K3]", "click[red]")
    step = environment.step("click[buy now]")
    assert step.terminated and step.success
    assert step.rewards == {"score": 1.0, "solved": 1.0}
    assert step.observation.text == "Bought K3 for $31.50. Score: 1.00."
    assert step.metrics == {
        "bought": 1.0,
        "type_score": 1.0,
        "attributes_matched": 2.0,
        "options_matched": 1.0,
        "price_matched": 1.0,
    }


def test_buying_something_near_has_a_part_of_the_reward() -> None:
    # Two attributes and the price of four wishes.
    step = begin("search[kettle lid]", "click[K3]").step("click[Buy Now]")
    assert step.terminated and not step.success and step.rewards == {"score": 0.75, "solved": 0.0}
    # A plain kettle in red, cheap enough: option and price.
    step = begin("search[plain kettle]", "click[K0]", "click[red]").step("click[Buy Now]")
    assert step.rewards == {"score": 0.5, "solved": 0.0}
    # A toaster is no kettle.
    step = begin("search[toaster]", "click[K4]", "click[red]").step("click[Buy Now]")
    assert step.rewards == {"score": 0.0, "solved": 0.0}


def test_after_buying_nothing_is_played() -> None:
    environment = begin("search[kettle lid]", "click[K3]", "click[red]", "click[Buy Now]")
    step = environment.step("click[Back to Search]")
    assert step.terminated and step.success and not step.valid and not step.effective and step.rewards == {}


# What is not possible


@pytest.mark.parametrize(
    ("way", "action", "legal"),
    [
        ((), "kettle", "search[QUERY]"),
        ((), "search[]", "search[QUERY]"),
        ((), "search[?!]", "search[QUERY]"),
        ((), "click[K3]", "search[QUERY]"),
        ((), "click[search]", "search[QUERY]"),
        (("search[kettle lid]",), "search[kettle]", "click[K3], click[K0], click[Next >], click[Back to Search]"),
        (("search[kettle lid]",), "click[K9]", "click[K3], click[K0], click[Next >], click[Back to Search]"),
        (("search[kettle lid]",), "click[red]", "click[K3], click[K0], click[Next >], click[Back to Search]"),
        (("search[kettle lid]",), "click[< Prev]", "click[K3], click[K0], click[Next >], click[Back to Search]"),
        (("search[toaster]", "click[K4]"), "click[blue]", "click[red], click[small], click[large], click[Buy Now]"),
        (("search[toaster]", "click[K4]"), "click[next >]", "click[Buy Now], click[< Prev], click[Back to Search]"),
    ],
)
def test_what_is_not_possible_is_told_what_is(way: tuple[str, ...], action: str, legal: str) -> None:
    environment = begin(*way)
    before = environment._observe("").state
    step = environment.step(action)
    assert not step.valid and not step.effective and not step.terminated and step.rewards == {}
    assert legal in step.observation.text and step.observation.state == before


def test_a_search_that_finds_nothing_shows_a_page_without_results() -> None:
    step = begin().step("search[spaceship]")
    assert step.valid and step.observation.text == "Nothing was found.\n[Back to Search]"


@example("click[\ud800\x00]")
@example("search[" + "[" * 5000 + "]")
@given(st.one_of(st.text(), st.text().map("search[{}]".format), st.text().map("click[{}]".format)))
def test_any_text_is_answered(action: str) -> None:
    for way in ((), ("search[kettle]",), ("search[kettle]", "click[K0]")):
        assert begin(*way).step(action).observation.text


# The baseline policies


def test_the_oracle_takes_the_first_promising_result_and_leaves_one_that_lacks_the_option() -> None:
    # K1 is too dear. K2 looks right, but is not to be had in red; K3 is on the second page.
    assert play(begin()) == [
        "search[quiet quick kettle]",
        "click[K2]",
        "click[< Prev]",
        "click[Next >]",
        "click[K3]",
        "click[red]",
        "click[Buy Now]",
    ]
    assert turns_needed(SHOP, GOAL, 2) == 7
    # On one page of ten there is no page to turn.
    assert play(begin(style=FULL)) == [
        "search[quiet quick kettle]",
        "click[K2]",
        "click[< Prev]",
        "click[K3]",
        "click[red]",
        "click[Buy Now]",
    ]
    assert turns_needed(SHOP, GOAL, 10) == 6


def test_the_oracle_thinks_only_of_what_is_shown() -> None:
    environment = begin()
    thoughts = []
    while not (step := environment.step((decision := environment.oracle(remaining(20))).actions[0])).terminated:
        thoughts.append(decision.thought)
    thoughts.append(decision.thought)
    assert step.success
    assert thoughts == [
        "search what is wanted",
        "result 2 fits",
        "not what is wanted",
        "look further",
        "result 1 fits",
        "choose color red",
        "all is chosen",
    ]


@pytest.mark.parametrize(
    "way",
    [
        ("search[toaster]",),
        ("search[toaster]", "click[K4]", "click[red]"),
        ("search[spaceship]",),
        ("search[quiet quick kettle]", "click[Next >]", "click[Next >]"),
        ("search[quiet quick kettle]", "click[K1]"),
        ("search[kettle lid]", "click[K3]", "click[blue]", "click[large]"),
        ("search[kettle lid]", "click[K3]", "click[< Prev]"),
        ("search[kettle lid]", "click[K3]", "click[description]"),
    ],
)
def test_the_oracle_takes_over_anywhere(way: tuple[str, ...]) -> None:
    style = PageStyle(2, description=True, repeat_goal=False)
    assert play(begin(*way, style=style))[-1] == "click[Buy Now]"


def test_the_oracle_buys_what_it_looks_at_in_its_last_turn() -> None:
    environment = begin("search[plain kettle]", "click[K0]")
    assert environment.oracle(remaining(1)).actions == ("click[Buy Now]",)
    assert environment.oracle(remaining(2)).actions == ("click[< Prev]",)


def test_a_goal_that_the_search_does_not_lead_to_has_no_number_of_turns() -> None:
    lost = Goal("K3:1", "K3", "A toaster", "toaster", ("quiet",), ("red",), 40.0)
    assert turns_needed(SHOP, lost, 3) is None


def test_the_random_baseline_asks_two_words_of_titles_and_clicks_every_button() -> None:
    generator = np.random.default_rng(0)
    asked = [begin().random(generator, remaining(5)).actions[0] for _ in range(200)]
    used = {word for action in asked for word in action.removeprefix("search[").removesuffix("]").split()}
    assert all(len(action[7:-1].split()) == RANDOM_WORDS for action in asked)
    assert used == set(SHOP.title_words)
    environment = begin("search[kettle lid]", "click[K3]")
    clicked = {environment.random(generator, remaining(5)).actions[0] for _ in range(200)}
    assert clicked == {f"click[{button}]" for button in environment._page.buttons}
