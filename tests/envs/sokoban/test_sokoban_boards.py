"""The boards: the rule of the push, the solver, and what is drawn, of each split its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envs.sokoban import Sokoban, generation
from envs.sokoban.generation import RoomRecipe, draw_board
from envs.sokoban.rooms import Position, Room, read_rows
from envs.sokoban.solver import first_push, solve
from turnwise.world import SPLITS, Split

UP, DOWN, LEFT, RIGHT = range(4)


def rows_of(room: Room, position: Position) -> list[str]:
    letters = room.letters(position)
    return [letters[first : first + room.size] for first in range(0, len(letters), room.size)]


def after(rows: Sequence[str], *actions: int) -> list[str]:
    room, position = read_rows(rows)
    for action in actions:
        position = room.after(position, action)
    return rows_of(room, position)


# The rule of the push


def test_a_board_is_read_and_written_in_the_usual_letters() -> None:
    rows = ["#####", "#*-.#", "#-$-#", "#.-+#", "#####"]
    room, position = read_rows(rows)
    assert rows_of(room, position) == rows
    assert (position.player, position.boxes, room.targets) == (18, (6, 12), (6, 8, 16, 18))


def test_the_player_walks_over_floor_and_targets_and_stops_at_walls() -> None:
    rows = ["#####", "#@.-#", "#-###", "#####", "#####"]
    assert after(rows, RIGHT)[1] == "#-+-#"
    assert after(rows, RIGHT, RIGHT)[1] == "#-.@#"
    assert after(rows, DOWN, DOWN) == ["#####", "#-.-#", "#@###", "#####", "#####"]
    assert after(rows, LEFT) == after(rows, UP) == rows


def test_a_box_gives_way_where_there_is_room_and_is_never_pulled() -> None:
    rows = ["#####", "#@$-#", "#--.#", "#---#", "#####"]
    assert after(rows, RIGHT)[1] == "#-@$#"
    # Against the wall it does not move, and going back leaves it where it is.
    assert after(rows, RIGHT, RIGHT)[1] == "#-@$#"
    assert after(rows, RIGHT, LEFT)[1] == "#@-$#"
    assert after(rows, DOWN, RIGHT, RIGHT, UP)[1:3] == ["#-$@#", "#--.#"]
    assert after(rows, DOWN, RIGHT, RIGHT, UP, LEFT)[1] == "#$@-#"


def test_two_boxes_in_a_row_do_not_move() -> None:
    rows = ["######", "#@$$-#", "#----#", "#-..-#", "#----#", "######"]
    assert after(rows, RIGHT) == rows
    # From above and below each can be moved.
    assert after(rows, DOWN, RIGHT, UP) == ["######", "#-$$-#", "#-@--#", "#-..-#", "#----#", "######"]


def test_the_pushes_to_a_target_count_the_walls_and_the_players_room() -> None:
    # A box in a corner or along the left wall never comes off it; the target is in the middle column.
    room, _ = read_rows(["#####", "#@--#", "#-.-#", "#-$-#", "#####"])
    assert room.pushes[12] == 0
    # Next to the target there is no room for the player behind the box, which stands at the wall.
    assert [room.pushes[cell] for cell in (6, 7, 8, 11, 13, 16, 17, 18)] == [None] * 8
    wide, _ = read_rows(["######", "#@---#", "#-.--#", "#--$-#", "#----#", "######"])
    # Target at row 2, column 2; cells 15 (row 2, column 3), 20 and 21 (row 3) can be pushed there, those at walls not.
    assert [wide.pushes[cell] for cell in (14, 15, 20, 21)] == [0, 1, 1, 2]
    assert [wide.pushes[cell] for cell in (7, 8, 13, 16, 19, 22, 25, 26)] == [None] * 8


# The solver


def without_pruning(room: Room, start: Position, most: int) -> int | None:
    frontier, seen = {start}, {start}
    for depth in range(most + 1):
        if any(room.solved(position) for position in frontier):
            return depth
        frontier = {room.after(position, action) for position in frontier for action in range(4)} - seen
        seen |= frontier
    return None


def test_a_solution_by_hand() -> None:
    # The box goes right, then up: 3 actions push, 2 walk round the box.
    room, start = read_rows(["######", "#---.#", "#@$--#", "#----#", "#----#", "######"])
    solution = solve(room, start, 20)
    assert solution == (RIGHT, RIGHT, DOWN, RIGHT, UP)
    assert solve(room, start, 5) == solution
    assert solve(room, start, 4) is None


def test_a_box_in_a_corner_is_not_solved() -> None:
    room, start = read_rows(["######", "#$---#", "#@---#", "#--.-#", "#----#", "######"])
    assert solve(room, start, 100) is None


def test_a_solved_board_needs_nothing() -> None:
    room, start = read_rows(["#####", "#@--#", "#-*-#", "#---#", "#####"])
    assert solve(room, start, 0) == ()


@given(seed=st.integers(0, 2**32), size=st.integers(5, 7), boxes=st.integers(1, 2), actions=st.lists(st.integers(0, 3)))
@settings(max_examples=60)
def test_the_solution_is_the_shortest_from_wherever_play_has_led(
    seed: int, size: int, boxes: int, actions: list[int]
) -> None:
    board = draw_board(seed, "train", RoomRecipe(size, boxes, 1, 12, 12))
    position = board.start
    for action in actions:
        position = board.room.after(position, action)
    solution = solve(board.room, position, 12)
    expected = without_pruning(board.room, position, 12)
    assert (None if solution is None else len(solution)) == expected
    for played, action in enumerate(solution or ()):
        # What is left of a solution is what is found again: an oracle that is asked again does not change its mind.
        assert solve(board.room, position, 12) == (solution or ())[played:]
        position = board.room.after(position, action)
    assert solution is None or board.room.solved(position)


def test_the_search_gives_up_rather_than_run_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    room, start = read_rows(["######", "#---.#", "#@$--#", "#----#", "#----#", "######"])
    solve.cache_clear()
    monkeypatch.setattr("envs.sokoban.solver.MOST_POSITIONS", 5)
    assert solve(room, start, 20) is None
    solve.cache_clear()


def test_the_first_push_knows_where_its_box_ends() -> None:
    room, start = read_rows(["######", "#---.#", "#@$--#", "#-$--#", "#-.--#", "######"])
    solution = solve(room, start, 20)
    assert solution is not None
    push = first_push(room, start, solution)
    # The box at row 2, column 2 is pushed first and ends at row 1, column 4, not on the nearer target below.
    assert (push.box, push.action, push.end) == (14, RIGHT, 10)
    with pytest.raises(ValueError, match="a solution must push a box"):
        first_push(room, start, (UP,))


# Boards


def test_tasks_are_named_for_ever_and_their_boards_with_them() -> None:
    # The task ids, and what numpy's generator draws for them, are promised to never change within version 1.
    world = Sokoban()
    task = world.tasks("train", 18)[17]
    assert task.id == "sokoban/1/6x6-boxes1-solution1to10-reverse30/train/17"
    assert (task.seed, task.tags) == (6468917223557694641, {"solution": 2})
    assert world.make(task, 0).reset().text.split("\n") == [
        "# # # # # #",
        "# # _ _ _ #",
        "# # _ _ O #",
        "# # # # X #",
        "# # # P _ #",
        "# # # # # #",
    ]


@given(seed=st.integers(0, 2**63 - 1), size=st.integers(6, 8), boxes=st.integers(1, 3), split=st.sampled_from(SPLITS))
@settings(max_examples=60)
def test_every_board_is_closed_solvable_and_of_its_split(seed: int, size: int, boxes: int, split: Split) -> None:
    board = draw_board(seed, split, RoomRecipe(size, boxes, 2, 9, 9))
    room, start = board.room, board.start
    assert board == draw_board.__wrapped__(seed, split, RoomRecipe(size, boxes, 2, 9, 9))
    rows = rows_of(room, start)
    border = rows[0] + rows[-1] + "".join(row[0] + row[-1] for row in rows)
    assert set(border) == {"#"} and len(rows) == size and all(len(row) == size for row in rows)
    assert len(start.boxes) == len(room.targets) == boxes and room.on_target(start) == 0
    assert room.floor[start.player] and start.player not in start.boxes
    assert room.split == split
    assert board.solution == without_pruning(room, start, 9) and board.solution >= 2


def test_a_room_and_its_mirror_images_are_in_one_split() -> None:
    for number in range(60):
        room = draw_board(number, "train", RoomRecipe(6, 1, 1, 10, 30)).room
        letters = room.letters()
        rows = [letters[first : first + 6] for first in range(0, 36, 6)]
        for turned in (
            rows[::-1],
            [row[::-1] for row in rows],
            ["".join(column) for column in zip(*rows, strict=True)],
        ):
            letters = "".join(turned)
            image = Room(6, tuple(letter != "#" for letter in letters), (letters.index("."),))
            assert image.split == "train"


@pytest.mark.parametrize("parameters", [{}, {"size": 5}, Sokoban.presets["ragen-large"]])
def test_no_room_is_in_two_splits(parameters: dict[str, Any]) -> None:
    world = Sokoban(**parameters)
    rooms = {
        split: {world.make(task, 0)._room for task in world.tasks(split, 300 if split == "train" else 80)}
        for split in SPLITS
    }
    assert not rooms["train"] & rooms["validation"] and not rooms["train"] & rooms["test"]
    assert not rooms["validation"] & rooms["test"]


def test_the_splits_are_alike_in_the_length_of_solutions() -> None:
    # The salt of the split was chosen for this: without one, a tenth of the rooms can be twice as easy as another.
    world = Sokoban()
    means = [sum(int(task.tags["solution"]) for task in world.tasks(split, 1000)) / 1000 for split in SPLITS]
    # The deviation of one length is 2.3: three standard errors of a difference are 0.3.
    assert max(means) - min(means) < 0.5


def test_boards_can_be_asked_to_be_hard() -> None:
    tasks = Sokoban(shortest=7).tasks("train", 30)
    assert all(7 <= int(task.tags["solution"]) <= 10 for task in tasks)


def test_a_split_without_boards_is_refused_rather_than_searched_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generation, "MAXIMUM_DRAWS", 50)
    with pytest.raises(ValueError, match="must allow for train boards; found none in 50 draws"):
        # On 5 x 5 cells with four boxes hardly a room has the place, and nothing there takes 40 actions.
        draw_board(0, "train", RoomRecipe(5, 4, 40, 40, 30))
