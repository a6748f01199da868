import re
from collections.abc import Iterator
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envs.browser.catalogue import PRODUCTS_OF_A_THING, THINGS, CatalogueProduct, catalogue, dollars, names
from envs.browser.loopback import PageRequest
from envs.browser.shop import COOKIE, LONGEST_COMMENT, BrowserShop, Comment, ShopSite
from envs.browser.shop_problems import KINDS, ShopOrder, ShopProblem, draw_order
from turnwise.world import SPLITS, Split

LAMP = CatalogueProduct(1, "red oak lamp", "lamp", 1240)
MUG = CatalogueProduct(2, "blue clay mug", "mug", 505)


@pytest.fixture
def shop() -> Iterator[BrowserShop]:
    yield BrowserShop([LAMP, MUG])


def text_of(shop: BrowserShop, path: str, **query: str) -> str:
    return shop.respond(PageRequest("GET", path, query)).body.decode()


def post(shop: BrowserShop, path: str, **form: str) -> str | None:
    return shop.respond(PageRequest("POST", path, form=form)).location


# The catalogue


def test_no_product_is_sold_in_two_splits_and_every_split_has_enough() -> None:
    for one, other in combinations(SPLITS, 2):
        for thing in THINGS:
            assert not set(names(one)[thing]) & set(names(other)[thing])
    # 144 products of a thing, of which 8, 1 and 1 in ten belong to the splits.
    assert all(len(pool) >= PRODUCTS_OF_A_THING for split in SPLITS for pool in names(split).values())
    total = {split: sum(map(len, names(split).values())) for split in SPLITS}
    assert sum(total.values()) == 12 * 144
    assert 0.75 < total["train"] / (12 * 144) < 0.85


@given(seed=st.integers(0, 2**63 - 1), split=st.sampled_from(SPLITS))
@settings(max_examples=50)
def test_a_catalogue_is_a_function_of_the_seed_without_two_equal_prices(seed: int, split: Split) -> None:
    products = catalogue(seed, split)
    assert products == catalogue(seed, split)
    assert [product.number for product in products] == list(range(1, 17))
    assert len({product.price for product in products}) == len({product.name for product in products}) == 16
    assert all(product.name in names(split)[product.thing] for product in products)


def test_a_catalogue_is_promised_for_ever() -> None:
    first, *_ = catalogue(17, "test")
    assert first == CatalogueProduct(1, "blue copper shelf", "shelf", 13830)


@pytest.mark.parametrize(("cents", "shown"), [(1240, "$12.40"), (505, "$5.05"), (10000, "$100.00")])
def test_prices_are_shown_in_dollars(cents: int, shown: str) -> None:
    assert dollars(cents) == shown


# The pages


def test_a_search_finds_the_products_with_every_word(shop: BrowserShop) -> None:
    assert "red oak lamp" in text_of(shop, "/search", q="Oak LAMP")
    assert "blue clay mug" not in text_of(shop, "/search", q="Oak LAMP")
    for nothing in ("", "lam", "oak mug"):
        assert "Nothing was found." in text_of(shop, "/search", q=nothing)


def test_a_category_lists_prices_and_a_product_its_own(shop: BrowserShop) -> None:
    assert "$12.40" in text_of(shop, "/category", thing="lamp")
    assert "$5.05" not in text_of(shop, "/category", thing="lamp")
    assert "Price: $5.05" in text_of(shop, "/product", number="2")


@pytest.mark.parametrize(
    ("method", "path", "fields"),
    [
        ("GET", "/nothing", {}),
        ("GET", "/product", {"number": "3"}),
        ("GET", "/product", {"number": "x"}),
        ("GET", "/category", {"thing": "boat"}),
        ("GET", "/cart/add", {"number": "1", "quantity": "1"}),
        ("POST", "/cart/add", {"number": "9", "quantity": "1"}),
        ("POST", "/comment", {"number": "9", "text": "hello"}),
    ],
)
def test_what_is_not_there_is_not_found(shop: BrowserShop, method: str, path: str, fields: dict[str, str]) -> None:
    query, form = (fields, {}) if method == "GET" else ({}, fields)
    assert shop.respond(PageRequest(method, path, query, form)).status == 404
    assert not shop.cart and not shop.comments


def test_a_cart_adds_up(shop: BrowserShop) -> None:
    assert post(shop, "/cart/add", number="1", quantity="2") == "/cart"
    assert post(shop, "/cart/add", number="2", quantity="1") == "/cart"
    assert post(shop, "/cart/add", number="1", quantity="1") == "/cart"
    assert shop.cart == {1: 3, 2: 1}
    cart = text_of(shop, "/cart")
    # 3 x 12.40 = 37.20, and 5.05 more is 42.25; four things are in the cart.
    assert "$37.20" in cart and "Total: $42.25" in cart and "Cart (4)" in cart
    post(shop, "/cart/remove", number="1")
    assert shop.cart == {2: 1}


@pytest.mark.parametrize("quantity", ["", "0", "-1", "100", "1.5", "two", "٣", "05", "000000001" + "1" * 5000])
def test_a_quantity_that_is_none_puts_nothing_into_the_cart(shop: BrowserShop, quantity: str) -> None:
    assert post(shop, "/cart/add", number="1", quantity=quantity) is None
    assert not shop.cart


def test_a_comment_is_shown_below_its_product_and_cannot_be_markup(shop: BrowserShop) -> None:
    assert post(shop, "/comment", number="1", text="  <b>big</b>\n & bright ") == "/product?number=1"
    assert shop.comments == [Comment(1, "<b>big</b> & bright")]
    assert "&lt;b&gt;big&lt;/b&gt; &amp; bright" in text_of(shop, "/product", number="1")
    assert "bright" not in text_of(shop, "/product", number="2")


@pytest.mark.parametrize("text", ["", "   ", "x" * (LONGEST_COMMENT + 1)])
def test_a_comment_without_text_or_too_long_is_not_posted(shop: BrowserShop, text: str) -> None:
    assert post(shop, "/comment", number="1", text=text) is None
    assert not shop.comments


def test_a_cookie_leads_to_a_shop_of_its_own() -> None:
    site, one, other = ShopSite(), BrowserShop([LAMP]), BrowserShop([MUG])
    first, second = site.open(one), site.open(other)
    site(PageRequest("POST", "/cart/add", form={"number": "2", "quantity": "1"}, cookies={COOKIE: second}))
    assert (one.cart, other.cart) == ({}, {2: 1})
    site.close(first)
    assert len(site) == 1
    assert site(PageRequest("GET", "/", cookies={COOKIE: first})).status == 404
    assert site(PageRequest("GET", "/")).status == 404


# The problems


@pytest.mark.parametrize("kind", KINDS)
def test_an_order_is_about_a_product_of_the_shop_and_says_so(kind: str) -> None:
    for seed in range(20):
        products = catalogue(seed, "train")
        order = draw_order(kind, products, seed)
        assert order == draw_order(kind, products, seed)
        assert order.product in products
        assert (order.product.thing if kind == "cheapest" else order.product.name) in order.goal
        assert re.search(r"[Ss]top", order.goal)


def test_the_cheapest_is_cheapest_among_its_kind() -> None:
    for seed in range(20):
        products = catalogue(seed, "test")
        order = draw_order("cheapest", products, seed)
        assert order.product.price == min(other.price for other in products if other.thing == order.product.thing)


def problem_of(order: ShopOrder) -> ShopProblem:
    problem = ShopProblem(ShopSite(), order.kind, 0, "train")
    problem.order, problem.shop = order, BrowserShop([LAMP, MUG])
    return problem


@pytest.mark.parametrize("answer", ["$12.40", "12.40", " $12.40 "])
def test_a_price_may_be_told_with_or_without_the_sign(answer: str) -> None:
    assert problem_of(ShopOrder("price", LAMP)).is_solved(answer)


@pytest.mark.parametrize("answer", ["", "12.4", "$12.41", "$12.40 $5.05", "the price is $12.40", "$$12.40"])
def test_another_price_or_a_list_of_prices_is_wrong(answer: str) -> None:
    assert not problem_of(ShopOrder("price", LAMP)).is_solved(answer)


def test_the_cheapest_must_be_named_in_full() -> None:
    problem = problem_of(ShopOrder("cheapest", LAMP))
    assert problem.is_solved("Red oak  lamp")
    assert not problem.is_solved("lamp") and not problem.is_solved("red oak lamp or blue oak lamp")


def test_a_cart_must_hold_what_was_asked_for_and_nothing_else() -> None:
    problem = problem_of(ShopOrder("cart", LAMP, quantity=2))
    assert not problem.is_solved("done")
    problem.shop.cart = {1: 2}
    assert problem.is_solved("") and problem.is_solved("anything")
    for wrong in ({1: 1}, {1: 3}, {1: 2, 2: 1}, {2: 2}):
        problem.shop.cart = wrong
        assert not problem.is_solved("done")


def test_the_comment_must_be_the_only_one_and_below_its_product() -> None:
    problem = problem_of(ShopOrder("comment", LAMP, comment="Works at once"))
    right = Comment(1, "Works at once")
    for comments, solved in [
        ([right], True),
        ([], False),
        ([right, right], False),
        ([Comment(2, "Works at once")], False),
        ([Comment(1, "works at once")], False),
    ]:
        problem.shop.comments = comments
        assert problem.is_solved("done") == solved


def test_what_no_page_shows_is_part_of_the_state() -> None:
    problem = problem_of(ShopOrder("cart", LAMP))
    empty = problem.hidden()
    problem.shop.cart = {2: 1}
    assert problem.hidden() != empty
