from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envs.sokoban import Sokoban, generation
from envs.sokoban.generation import Board, Recipe, draw_board
from envs.sokoban.rooms import ACTIONS, Position, Room, read_rows
from envs.sokoban.solver import first_push, solve
from envs.sokoban.world import SokobanEnvironment
from turnwise import seeding
from turnwise.checking import check_world
from turnwise.checking.episodes import play
from turnwise.world import SPLITS, Decision, Remaining, Split, make_world

UP, DOWN, LEFT, RIGHT = range(4)


def environment_on(*rows: str, **parameters: Any) -> SokobanEnvironment:
    room, start = read_rows(rows)
    environment = SokobanEnvironment(Sokoban(**parameters), Board(room, start, 1))
    environment.reset()
    return environment


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
    # Beside the target there is no room for the player behind the box, which stands at the wall.
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
    board = draw_board(seed, "train", Recipe(size, boxes, 1, 12, 12))
    position = board.start
    for action in actions:
        position = board.room.after(position, action)
    solution = solve(board.room, position, 12)
    expected = without_pruning(board.room, position, 12)
    assert (None if solution is None else len(solution)) == expected
    for played, action in enumerate(solution or ()):
        # What is left of a solution is what is found anew: an oracle that is asked again does not change its mind.
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
    board = draw_board(seed, split, Recipe(size, boxes, 2, 9, 9))
    room, start = board.room, board.start
    assert board == draw_board.__wrapped__(seed, split, Recipe(size, boxes, 2, 9, 9))
    rows = rows_of(room, start)
    border = rows[0] + rows[-1] + "".join(row[0] + row[-1] for row in rows)
    assert set(border) == {"#"} and len(rows) == size and all(len(row) == size for row in rows)
    assert len(start.boxes) == len(room.targets) == boxes and room.on_target(start) == 0
    assert room.floor[start.player] and start.player not in start.boxes
    assert room.split == split
    assert board.solution == without_pruning(room, start, 9) and board.solution >= 2


def test_a_room_and_its_mirror_images_are_in_one_split() -> None:
    for number in range(60):
        room = draw_board(number, "train", Recipe(6, 1, 1, 10, 30)).room
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
        draw_board(0, "train", Recipe(5, 4, 40, 40, 30))


# The environment


def test_the_board_is_shown_with_a_token_for_every_cell() -> None:
    environment = environment_on("#####", "#*-.#", "#-$-#", "#.-+#", "#####")
    assert environment.reset().text == "# # # # #\n# √ _ O #\n# _ X _ #\n# O _ S #\n# # # # #"


def test_another_symbol_set_is_shown_and_explained() -> None:
    environment = environment_on("#####", "#*-.#", "#-$-#", "#.-+#", "#####", symbols="W.GCBA@")
    assert environment.reset().text == "W W W W W\nW C . G W\nW . B . W\nW G . @ W\nW W W W W"
    assert "W wall, . floor, G target, C box on a target" in Sokoban(symbols="W.GCBA@").instruction


def test_the_coordinate_view_says_where_everything_is() -> None:
    environment = environment_on("#####", "#*-.#", "##$-#", "#.-+#", "#####", view="coordinates")
    assert environment.reset().text == "you 3 3\nbox 1 1, 2 2\ntarget 1 1, 1 3, 3 1, 3 3\nwall 2 1"
    open_room = environment_on("#####", "#@--#", "#-$-#", "#.--#", "#####", view="coordinates")
    assert open_room.reset().text == "you 1 1\nbox 2 2\ntarget 3 1"


def test_views_and_limits_show_the_same_boards() -> None:
    plain, other = Sokoban(), Sokoban(view="coordinates", symbols="W.GCBA@", turns=20)
    assert plain.tasks("test", 20) == other.tasks("test", 20)
    for task in plain.tasks("test", 20):
        assert plain.make(task, 0).reset().state == other.make(task, 0).reset().state


def test_rewards_of_a_solution() -> None:
    # Two pushes to the right: -0.1 each, then +1 for the box and +10 for the board.
    environment = environment_on("######", "#@$-.#", "#----#", "#----#", "#----#", "######")
    first, second = environment.step("Right"), environment.step("Right")
    assert dict(first.rewards) == {"step": -0.1}
    assert dict(second.rewards) == {"step": -0.1, "box": 1.0, "solved": 10.0}
    assert (first.terminated, first.success, second.terminated, second.success) == (False, False, True, True)
    assert second.observation.text.startswith("# # # # # #\n# _ _ P √ #")


def test_a_box_that_leaves_its_target_costs_what_it_brought() -> None:
    environment = environment_on("######", "#@*-.#", "#---$#", "#----#", "#----#", "######")
    away = environment.step("Right")
    assert dict(away.rewards) == {"step": -0.1, "box": -1.0}
    # From one target to another, when there are more: neither gained nor lost.
    beside = environment_on("######", "#@*.-#", "#---$#", "#----#", "#----#", "######")
    assert dict(beside.step("Right").rewards) == {"step": -0.1}


def test_a_blocked_action_is_valid_costs_its_step_and_changes_nothing() -> None:
    environment = environment_on("######", "#@$-.#", "#----#", "#----#", "#----#", "######")
    before = environment.reset()
    step = environment.step("Up")
    assert step.valid and not step.effective and not step.terminated
    assert step.observation == before and dict(step.rewards) == {"step": -0.1}


@pytest.mark.parametrize("player", ["random", "oracle"])
def test_the_rewards_of_an_episode_sum_as_documented(player: str) -> None:
    world = Sokoban(**Sokoban.presets["ragen-large"])
    for task in world.tasks("train", 60):
        episode = play(world, task, 0, player)
        total = sum(sum(step.rewards.values()) for step in episode.steps)
        state = episode.steps[-1].observation.state or ""
        expected = (10 if episode.success else 0) + state.count("*") - 0.1 * len(episode.steps)
        assert total == pytest.approx(expected)
        assert episode.success == (state.count("*") == 2)


@pytest.mark.parametrize("action", ["right", " RIGHT\n", "Right"])
def test_actions_are_read_in_any_case_and_stripped(action: str) -> None:
    assert environment_on("#####", "#@$.#", "#---#", "#---#", "#####").step(action).success


@given(st.text())
@settings(max_examples=200)
def test_any_other_text_is_answered_and_changes_nothing(action: str) -> None:
    if action.strip().capitalize() in ACTIONS:
        return
    environment = environment_on("#####", "#@$.#", "#---#", "#---#", "#####")
    before = environment.reset()
    step = environment.step(action)
    assert step.observation.text == "Not an action. Legal: Up, Down, Left or Right.\n" + before.text
    assert step.observation.state == before.state
    assert (step.valid, step.effective, step.terminated, dict(step.rewards)) == (False, False, False, {})


def test_nothing_happens_after_the_end() -> None:
    environment = environment_on("#####", "#@$.#", "#---#", "#---#", "#####")
    last = environment.step("Right")
    again = environment.step("Left")
    assert again.observation == last.observation
    assert (again.valid, again.effective, again.terminated, again.success) == (False, False, True, True)
    assert not again.rewards


# The players


def test_the_oracle_says_where_the_box_is_where_it_goes_and_how_it_pushes() -> None:
    environment = environment_on("######", "#---.#", "#@$--#", "#----#", "#----#", "######")
    assert environment.oracle(Remaining(5, 2, 10)) == Decision(
        "box right 1, target up 1 right 2, push right", ("Right", "Right")
    )
    for action in ("Right", "Right"):
        environment.step(action)
    # The box is beside the player now, and has to go up: he walks round it first.
    assert environment.oracle(Remaining(4, 2, 8)) == Decision("box right 1, target up 1, push up", ("Down", "Right"))
    assert environment.oracle(Remaining(4, 5, 8)).actions == ("Down", "Right", "Up")
    assert environment.oracle(Remaining(4, 5, 1)).actions == ("Down",)


def test_the_oracle_goes_on_where_too_few_actions_are_left() -> None:
    environment = environment_on("######", "#---.#", "#@$--#", "#----#", "#----#", "######")
    assert environment.oracle(Remaining(1, 5, 3)).actions == ("Right", "Right", "Down")


def test_the_oracle_admits_that_a_box_is_stuck_and_moves_all_the_same() -> None:
    environment = environment_on("######", "#$---#", "#@---#", "#--.-#", "#----#", "######")
    assert environment.oracle(Remaining(5, 2, 10)) == Decision("no way found", ("Down",))


@pytest.mark.parametrize("preset", sorted(Sokoban.presets))
def test_the_oracle_solves_every_board_within_the_limits(preset: str) -> None:
    world = Sokoban(**Sokoban.presets[preset])
    for task in world.tasks("test", 100):
        episode = play(world, task, 0, "oracle")
        assert episode.success and len(episode.steps) == task.tags["solution"]


def test_the_random_player_is_as_good_as_on_ragens_boards() -> None:
    # 18.1% on RAGEN's 6 x 6 boards with one box (field notes); three standard errors over 2,000 boards are 0.026, and
    # the splits differ by up to 0.02.
    world = Sokoban()
    solved = sum(play(world, task, 0, "random").success for task in world.tasks("train", 2000)) / 2000
    assert abs(solved - 0.181) < 0.03
    # 2.0% on the large ones; three standard errors over 2,000 boards are 0.009.
    large = Sokoban(**Sokoban.presets["ragen-large"])
    solved = sum(play(large, task, 0, "random").success for task in large.tasks("train", 2000)) / 2000
    assert abs(solved - 0.02) < 0.01


def test_the_random_player_uses_the_whole_turn_and_no_more_than_is_left() -> None:
    environment = environment_on("#####", "#@$.#", "#---#", "#---#", "#####")
    generator = seeding.generator(0, "player")
    assert len(environment.random(generator, Remaining(3, 2, 5)).actions) == 2
    assert len(environment.random(generator, Remaining(3, 2, 1)).actions) == 1


# The world


@pytest.mark.parametrize("parameters", [Sokoban.presets["ragen-large"], Sokoban.presets["ragen-coordinates"]])
def test_the_world_keeps_the_contract(parameters: dict[str, Any]) -> None:
    report = check_world(Sokoban(**parameters), parameters=parameters, oracle_success=1.0, count=20, sample=1)
    assert report.passed, report.lines()


def test_the_presets_are_ragens_settings() -> None:
    small, large = Sokoban(**Sokoban.presets["ragen"]), Sokoban(**Sokoban.presets["ragen-large"])
    assert small.limits == large.limits
    assert (small.limits.turns, small.limits.actions_per_turn, small.limits.actions) == (5, 5, 10)
    assert small.tasks("test", 5) == Sokoban().tasks("test", 5)
    assert large.tasks("test", 1)[0].id.startswith("sokoban/1/8x8-boxes2-")


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"size": 4}, "size must be a whole number from 5 to 10; found 4"),
        ({"boxes": 5}, "boxes must be a whole number from 1 to 4; found 5"),
        ({"shortest": 0}, "shortest must be a whole number from 1 to 10; found 0"),
        ({"shortest": 6, "longest": 5}, "shortest must be a whole number from 1 to 5; found 6"),
        ({"longest": 11}, "longest .* must be a whole number from 1 to 10; found 11"),
        ({"turns": 3}, "longest .* must be a whole number from 1 to 6; found 10"),
        ({"reverse_moves": 0}, "reverse_moves must be"),
        ({"turns": True}, "turns must be"),
        ({"view": "picture"}, "view must be one of grid, coordinates; found 'picture'"),
        ({"symbols": "#_OX"}, "symbols must be seven different visible characters"),
        ({"symbols": "# O√XPS"}, "symbols must be seven different visible characters"),
        ({"symbols": "##O√XPS"}, "symbols must be seven different visible characters"),
    ],
)
def test_wrong_parameters_are_refused_by_name(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Sokoban(**parameters)


def test_a_task_of_other_parameters_is_refused() -> None:
    (task,) = Sokoban(size=7).tasks("train", 1)
    with pytest.raises(ValueError, match="sokoban/1/6x6-boxes1-solution1to10-reverse30/"):
        make_world("envs.sokoban:Sokoban", {}).make(task, 0)
