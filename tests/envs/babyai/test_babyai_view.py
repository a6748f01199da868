import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from minigrid.core.actions import Actions
from minigrid.core.constants import COLOR_TO_IDX, OBJECT_TO_IDX, STATE_TO_IDX

from envs.babyai.levels import start
from envs.babyai.view import Thing, View, view_of, way, ways

LETTERS = {"?": "unseen", ".": "empty", "#": "wall", "^": "empty", "o": "ball", "k": "key", "b": "box", "d": "door"}


def seen(*rows: str, color: str = "red", door: str = "closed") -> View:
    """A view drawn as the agent (^) sees it, the farthest row first; every thing has one colour."""
    image = np.zeros((7, 7, 3), dtype=np.uint8)
    for row, letters in enumerate(rows):
        for column, letter in enumerate(letters):
            state = STATE_TO_IDX[door] if letter == "d" else 0
            image[column, row] = (OBJECT_TO_IDX[LETTERS[letter]], COLOR_TO_IDX[color], state)
    return view_of(image)


ROOM = (
    "???????",
    "#######",
    "#.o...#",
    "#.....#",
    "#..k..d",
    "#.....#",
    "#..^..#",
)


# What is said


def test_things_are_told_by_their_place_from_near_to_far() -> None:
    view = seen(*ROOM)
    assert [str(thing) for thing in view.things] == [
        "a red key 2 forward",
        "a red ball 1 left 4 forward",
        "a closed red door 3 right 2 forward",
    ]


def test_walls_are_told_straight_ahead_and_to_the_sides() -> None:
    assert seen(*ROOM).walls == {"forward": 5, "left": 3, "right": 3}
    assert str(seen(*ROOM)).splitlines()[1] == "Walls: 5 forward, 3 left, 3 right"


def test_of_walls_in_a_line_the_nearest_is_told() -> None:
    rows = ("...#...", "...#...", "...#...", ".......", ".......", ".......", "##.^...")
    assert seen(*rows).walls == {"forward": 4, "left": 2}


def test_an_empty_view_is_told_as_nothing() -> None:
    rows = ("???????",) * 6 + ("???^???",)
    assert str(seen(*rows)) == "You see: nothing\nWalls: none"


@pytest.mark.parametrize(
    ("state", "words"), [("open", "an open red"), ("closed", "a closed red"), ("locked", "a locked red")]
)
def test_doors_are_told_with_their_state(state: str, words: str) -> None:
    assert str(seen(*ROOM, door=state).things[2]) == f"{words} door 3 right 2 forward"


def test_what_is_carried_is_not_seen_as_a_thing() -> None:
    # The package shows it in the agent's own cell.
    assert seen(*("???????",) * 6, "???o???").things == ()


def test_places_are_told_without_zeros() -> None:
    assert Thing("red ball", (0, 1)).place == "1 forward"
    assert Thing("red ball", (-2, 0)).place == "2 left"
    assert Thing("red ball", (2, 3)).place == "2 right 3 forward"


@given(seed=st.integers(0, 2**32 - 1), level=st.sampled_from(["GoToLocal", "OpenDoor", "PutNextLocal", "BossLevel"]))
@settings(max_examples=30)
def test_what_is_told_is_where_the_package_has_it(seed: int, level: str) -> None:
    drawn = start(level, seed)
    for thing in view_of(drawn.gen_obs()["image"]).things:
        right, forward = thing.cell
        column, row = drawn.agent_pos + forward * drawn.dir_vec + right * drawn.right_vec
        found = drawn.grid.get(int(column), int(row))
        assert found is not None and thing.name == f"{found.color} {found.type}"


# The way to a thing


def test_the_way_goes_straight_on_first_and_ends_facing_the_thing() -> None:
    # The ball is 1 left and 4 forward: four steps forward, and it is to the left.
    view = seen(*(row.replace("k", ".") for row in ROOM))
    assert way(view, "red ball") == [Actions.forward] * 4 + [Actions.left]


def test_the_way_leads_round_what_is_in_the_way() -> None:
    # The key bars the way ahead at 2 forward. The ball is behind it, at 1 left 4 forward. Facing it from the right
    # takes a step to the right of the key; facing it from below takes 1 forward, left, 1, right, 2: six actions.
    forward, left, right = Actions.forward, Actions.left, Actions.right
    assert way(seen(*ROOM), "red ball") == [forward, left, forward, right, forward, forward]


def test_a_thing_right_ahead_is_no_way_off_and_a_hidden_one_has_none() -> None:
    rows = ("???????",) * 4 + ("#######", "...k...", "...^...")
    assert way(seen(*rows), "red key") == way(seen(*rows), "key") == []
    assert way(seen(*rows), "red ball") is None


def test_a_thing_behind_walls_and_closed_doors_has_no_way_and_behind_an_open_one_has() -> None:
    rows = ("???o???", "???.???", "???.???", "###d###", ".......", ".......", "...^...")
    assert way(seen(*rows, door="closed"), "red ball") is None
    assert way(seen(*rows, door="open"), "red ball") == [Actions.forward] * 5
    assert way(seen(*rows, door="locked"), "red door") == [Actions.forward] * 2


def test_of_things_of_one_name_the_nearest_is_meant() -> None:
    rows = ("...o...", ".......", ".......", ".......", ".......", "....o..", "...^...")
    assert way(seen(*rows), "red ball") == way(seen(*rows), "ball") == [Actions.forward, Actions.right]


@given(seed=st.integers(0, 2**32 - 1), level=st.sampled_from(["PickupLoc", "OpenDoor", "PutNextLocal", "BossLevel"]))
@settings(max_examples=30)
def test_every_way_leads_there_in_the_package(seed: int, level: str) -> None:
    for name, actions in ways(view_of(start(level, seed).gen_obs()["image"])).items():
        drawn = start(level, seed)
        for action in actions:
            drawn.step(action)
        ahead = drawn.grid.get(*(int(place) for place in drawn.front_pos))
        assert ahead is not None and name == f"{ahead.color} {ahead.type}"
