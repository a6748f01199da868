from collections import Counter

import minecraft_data
import pytest
from hypothesis import given
from hypothesis import strategies as st

from envs.textcraft import recipes as recipes_module
from envs.textcraft.recipes import RAW, Recipe, depth, recipes, tree, without_circles
from envs.textcraft.shortage import missing


def alternatives(**written: list[tuple[int, dict[str, int]]]) -> dict[str, list[Recipe]]:
    return {
        product: [Recipe(product, count, tuple(ingredients.items())) for count, ingredients in known]
        for product, known in written.items()
    }


# The game's recipes


def test_every_item_that_the_game_can_craft_has_a_recipe_or_is_declared_raw() -> None:
    data = minecraft_data("1.19")
    names = {item["id"]: item["name"].replace("_", " ") for item in data.items_list}
    craftable = {names[int(number)] for number in data.recipes}
    assert len(craftable) == 667
    assert set(recipes()) == craftable - set(RAW)
    assert len(recipes()) == 652


def test_recipes_are_the_games_own() -> None:
    # As a player of the game knows them: three planks in a row make six slabs, a torch is coal on a stick.
    for product, command in {
        "oak slab": "craft 6 oak slab using 3 oak planks",
        "torch": "craft 4 torch using 1 coal, 1 stick",
        "bookshelf": "craft 1 bookshelf using 6 oak planks, 3 book",
        "cake": "craft 1 cake using 2 sugar, 3 wheat, 1 egg, 3 milk bucket",
    }.items():
        words = command.split(" using ")
        shown = recipes()[product].command().split(" using ")
        assert shown[0] == words[0]
        assert sorted(shown[1].split(", ")) == sorted(words[1].split(", "))


def test_of_alternatives_the_first_in_the_games_numbering_stands() -> None:
    assert recipes()["stick"].command() == "craft 4 stick using 2 oak planks"
    assert recipes()["white bed"].command() == "craft 1 white bed using 3 oak planks, 3 white wool"


def test_depths_are_as_the_world_states_them() -> None:
    assert Counter(depth(item) for item in recipes()) == {1: 170, 2: 251, 3: 193, 4: 38}
    # oak log 0, oak planks 1, stick 2, wooden hoe 3
    assert [depth(item) for item in ("oak log", "oak planks", "stick", "wooden hoe")] == [0, 1, 2, 3]


def test_no_recipe_leads_back_to_its_product() -> None:
    for product in recipes():
        assert product not in {item for recipe in tree(product) for item, _ in recipe.ingredients}


@pytest.mark.parametrize("item", RAW)
def test_an_item_that_is_declared_raw_would_go_in_circles(item: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recipes_module, "RAW", tuple(raw for raw in RAW if raw != item))
    _, known = recipes_module._game_data()
    with pytest.raises(ValueError, match=f"go in circles: .*{item}"):
        without_circles(known)


def test_other_data_than_the_task_ids_name_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recipes_module, "GAME_VERSION", "1.18")
    with pytest.raises(ValueError, match=r"recipes must be those of Minecraft 1\.18"):
        recipes.__wrapped__()


# Circles


def test_taking_apart_is_left_out_and_a_detour_is_not() -> None:
    # A slab is made of stone, or of a chiseled block that is itself two slabs. A stick is made of bamboo, or by a
    # longer way of planks, which are not made of sticks: both stay.
    known = alternatives(
        slab=[(6, {"stone": 3}), (2, {"chiseled": 1})],
        chiseled=[(1, {"slab": 2})],
        planks=[(4, {"log": 1})],
        stick=[(4, {"planks": 2}), (1, {"bamboo": 2})],
    )
    kept = without_circles(known)
    assert kept["slab"] == known["slab"][:1]
    assert kept["chiseled"] == known["chiseled"]
    assert kept["stick"] == known["stick"]


def test_a_circle_without_a_raw_item_is_refused_by_name() -> None:
    known = alternatives(block=[(1, {"ingot": 9})], ingot=[(9, {"block": 1})], rail=[(16, {"ingot": 6, "stick": 1})])
    with pytest.raises(ValueError, match="go in circles: block, ingot, rail"):
        without_circles(known)


# What is missing


def by_product(**written: tuple[int, dict[str, int]]) -> dict[str, Recipe]:
    return {name: Recipe(name, count, tuple(used.items())) for name, (count, used) in written.items()}


WOOD = by_product(sign=(3, {"planks": 6, "stick": 1}), stick=(4, {"planks": 2}), planks=(4, {"log": 1}))


def test_needs_of_a_shared_ingredient_add_up() -> None:
    # One sign: 6 planks and 1 stick; the stick takes 2 planks more, 8 in all, which are 2 crafts of 4 from 2 logs.
    assert missing("sign", 1, {}, WOOD) == [("sign", 1), ("stick", 1), ("planks", 8), ("log", 2)]


def test_what_is_held_counts_at_every_level() -> None:
    # A stick is held, so only 6 planks are needed; 3 are there, so 3 are missing: one craft, one log.
    assert missing("sign", 1, {"stick": 1, "planks": 3}, WOOD) == [("sign", 1), ("planks", 3), ("log", 1)]
    assert missing("sign", 1, {"stick": 2, "planks": 9}, WOOD) == [("sign", 1)]
    assert missing("sign", 1, {"sign": 3}, WOOD) == []


def test_more_than_one_craft_gives_needs_as_many_times() -> None:
    # Four signs are two crafts: 12 planks and 2 sticks; the sticks are one craft of 4, so 14 planks, 4 crafts, 4 logs.
    assert missing("sign", 4, {}, WOOD) == [("sign", 4), ("stick", 2), ("planks", 14), ("log", 4)]


@given(
    goal=st.sampled_from(sorted(recipes())),
    wanted=st.integers(1, 40),
    held=st.dictionaries(st.sampled_from(sorted(recipes())), st.integers(1, 20), max_size=6),
)
def test_nothing_is_missing_of_the_ingredients_of_the_last(goal: str, wanted: int, held: dict[str, int]) -> None:
    short = missing(goal, wanted, held, recipes())
    assert (not short) == (held.get(goal, 0) >= wanted)
    if short and short[-1][0] in recipes():
        item, amount = short[-1]
        recipe = recipes()[item]
        times = -(-amount // recipe.count)
        assert all(held.get(ingredient, 0) >= needed * times for ingredient, needed in recipe.ingredients)
