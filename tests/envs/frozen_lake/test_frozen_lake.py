from functools import cache
from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envs.frozen_lake import FrozenLake, boards
from envs.frozen_lake.boards import GOAL, HOLE, LakeBoard, draw_board
from envs.frozen_lake.lake import ACTIONS, LakeEnvironment
from envs.frozen_lake.planner import make_lake, plan
from turnwise import seeding
from turnwise.checking import check_world
from turnwise.checking.playing import play
from turnwise.world import SPLITS, Remaining, Split, Task, make_world


def environment_on(*rows: str, seed: int = 0, **parameters: Any) -> LakeEnvironment:
    world = FrozenLake(**parameters)
    task = Task(world.name, "by hand", "train", 0)
    environment = LakeEnvironment(world, task, LakeBoard(rows), seed)
    environment.reset()
    return environment


# Tasks and boards


def test_tasks_are_named_for_ever_and_their_boards_with_them() -> None:
    # The task ids, and what numpy's generator draws for them, are promised to never change within version 1.
    world = FrozenLake()
    task = world.tasks("train", 18)[17]
    assert task.id == "frozen_lake/1/4x4-p0.8/train/17"
    assert task.seed == 5496283054366544121
    assert world.make(task, 0).reset().text == "O _ _ _\n_ _ P _\n_ O _ G\n_ _ O _"


def test_a_task_set_is_a_prefix_of_a_longer_one() -> None:
    world = FrozenLake()
    for split in SPLITS:
        assert world.tasks(split, 5) == world.tasks(split, 12)[:5]


@pytest.mark.parametrize(("size", "frozen"), [(3, 1.0), (4, 0.8), (6, 0.9)])
def test_no_board_is_in_two_splits(size: int, frozen: float) -> None:
    # With size 3 and no holes there are only 72 boards, so nearly all of them turn up.
    world = FrozenLake(size=size, frozen=frozen)
    shown = {
        split: {world.make(task, 0).reset().text for task in world.tasks(split, 120 if split == "train" else 40)}
        for split in SPLITS
    }
    assert not shown["train"] & shown["validation"]
    assert not shown["train"] & shown["test"]
    assert not shown["validation"] & shown["test"]


def test_coordinates_name_the_agent_the_goal_and_the_holes() -> None:
    environment = environment_on("SFF", "HFH", "FFG", view="coordinates")
    refusal = environment.step("jump").observation.text
    assert refusal == "Not an action. Legal: Left, Down, Right or Up.\nyou 0 0\ngoal 2 2\nhole 1 0, 1 2"
    assert environment.step("Right").observation.text == "you 0 1\ngoal 2 2\nhole 1 0, 1 2"
    for action in ("Down", "Down"):
        environment.step(action)
    assert environment.step("Right").observation.text == "you 2 2\ngoal 2 2\nhole 1 0, 1 2\nyou are on the goal"
    fallen = environment_on("SFF", "HFH", "FFG", view="coordinates").step("Down")
    assert fallen.observation.text == "you 1 0\ngoal 2 2\nhole 1 0, 1 2\nyou are in a hole"


def test_a_view_changes_the_text_and_nothing_else() -> None:
    seen, told = FrozenLake(success_rate=0.8), FrozenLake(success_rate=0.8, view="coordinates")
    for task in seen.tasks("test", 5):
        assert task in told.tasks("test", 5)
        one, other = seen.make(task, 3), told.make(task, 3)
        first, second = one.reset(), other.reset()
        assert first.state == second.state and first.text != second.text
        for action in ACTIONS:
            assert one.step(action).observation.state == other.step(action).observation.state
    assert "row" in told.instruction and "row" not in seen.instruction
    with pytest.raises(ValueError, match="view must be one of grid, coordinates; found 'map'"):
        FrozenLake(view="map")


def test_a_split_without_boards_is_refused_rather_than_searched_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    # One draw stands for the thousands that a split without boards would take: seed 0 gives a test board.
    monkeypatch.setattr(boards, "MAXIMUM_DRAWS", 1)
    assert draw_board(0, "test", 4, 1.0).split == "test"
    with pytest.raises(ValueError, match="size and frozen must allow for train boards"):
        draw_board(0, "train", 4, 1.0)


@given(
    seed=st.integers(0, 2**63 - 1), size=st.integers(3, 7), frozen=st.floats(0.5, 1.0), split=st.sampled_from(SPLITS)
)
@settings(max_examples=60)
def test_every_board_has_a_start_a_goal_a_path_and_its_split(seed: int, size: int, frozen: float, split: Split) -> None:
    board = draw_board(seed, split, size, frozen)
    assert board == draw_board(seed, split, size, frozen)
    assert board.size == size and all(len(row) == size for row in board.rows)
    assert board.cells.count("S") == board.cells.count("G") == 1
    assert board.split == split
    assert board.distance is not None and board.distance >= 1


def test_starts_and_goals_are_everywhere_and_ice_is_as_frequent_as_asked() -> None:
    drawn = [draw_board(seed, "train", 4, 0.8) for seed in range(600)]
    assert {board.start for board in drawn} == {board.goal for board in drawn} == set(range(16))
    # Boards without a path are thrown away, which favours ice a little: above 0.8 of the 14 other cells, not far above.
    ice = sum(board.cells.count("F") for board in drawn) / (14 * len(drawn))
    assert 0.8 < ice < 0.87


def test_distance_is_the_shortest_way_round_the_holes() -> None:
    # S H G
    # F F F   right is barred, so: down, right, right, up
    # F F F
    assert LakeBoard(("SHG", "FFF", "FFF")).distance == 4
    assert LakeBoard(("SHG", "HFF", "FFF")).distance is None
    assert FrozenLake().tasks("train", 18)[17].tags == {"distance": 2}


# The environment


def test_the_board_is_shown_with_a_token_for_every_cell() -> None:
    environment = environment_on("SFF", "FHF", "FGF")
    assert environment.reset().text == "P _ _\n_ O _\n_ G _"


def test_a_walk_to_the_goal() -> None:
    environment = environment_on("SFF", "FHF", "FGF")
    steps = [environment.step(action) for action in ("Down", "Down", "Right")]
    assert [step.observation.text for step in steps] == [
        "_ _ _\nP O _\n_ G _",
        "_ _ _\n_ O _\nP G _",
        "_ _ _\n_ O _\n_ √ _",
    ]
    assert [step.terminated for step in steps] == [False, False, True]
    assert [step.success for step in steps] == [False, False, True]
    assert [dict(step.rewards) for step in steps] == [{}, {}, {"goal": 1.0}]


def test_a_hole_ends_the_episode_without_reward() -> None:
    environment = environment_on("SFF", "FHF", "FGF")
    environment.step("Right")
    fallen = environment.step("Down")
    assert fallen.observation.text == "_ _ _\n_ X _\n_ G _"
    assert fallen.terminated and not fallen.success and not fallen.truncated
    assert fallen.rewards == {"goal": 0.0}


def test_the_edge_stops_the_baseline_and_that_is_valid_but_not_effective() -> None:
    environment = environment_on("SFF", "FHF", "FGF")
    step = environment.step("Up")
    assert step.valid and not step.effective
    assert step.observation == environment.reset()


@pytest.mark.parametrize("action", ["left", " LEFT\n", "Left"])
def test_actions_are_read_in_any_case_and_stripped(action: str) -> None:
    environment = environment_on("FSF", "FHF", "FGF")
    assert environment.step(action).observation.text == "P _ _\n_ O _\n_ G _"


@given(st.text())
@settings(max_examples=200)
def test_any_other_text_is_answered_and_changes_nothing(action: str) -> None:
    if action.strip().capitalize() in ACTIONS:
        return
    environment = environment_on("SFF", "FHF", "FGF", success_rate=0.5)
    before = environment.reset()
    step = environment.step(action)
    assert step.observation.text == "Not an action. Legal: Left, Down, Right or Up.\n" + before.text
    assert step.observation.state == before.state
    assert (step.valid, step.effective, step.terminated, dict(step.rewards)) == (False, False, False, {})


def test_refused_actions_do_not_disturb_the_slip() -> None:
    moves = ["Right", "Down", "Left", "Down"] * 3
    plain = environment_on("SFFF", "FFFF", "FFFF", "FFFG", seed=5, success_rate=1 / 3)
    disturbed = environment_on("SFFF", "FFFF", "FFFF", "FFFG", seed=5, success_rate=1 / 3)
    for move in moves:
        disturbed.step("jump")
        assert disturbed.step(move) == plain.step(move)


def test_the_slip_is_a_function_of_the_episode_seed() -> None:
    def walk(seed: int) -> list[str]:
        environment = environment_on("SFFF", "FFFF", "FFFF", "FFFG", seed=seed, success_rate=1 / 3)
        return [environment.step(action).observation.text for action in ["Right", "Down"] * 4]

    assert walk(1) == walk(1)
    assert len({tuple(walk(seed)) for seed in range(8)}) > 4


def test_an_action_goes_where_it_points_as_often_as_the_success_rate_says() -> None:
    # From the middle of an empty board: up with probability 0.8, left and right with 0.1 each, never down.
    seen = []
    for seed in range(1000):
        environment = environment_on("FFF", "FSF", "FFG", seed=seed, success_rate=0.8)
        seen.append(environment.step("Up").observation.text.replace(" ", "").replace("\n", "").index("P"))
    # Three standard errors of a share of 0.8 over 1,000 draws are 0.038.
    assert abs(seen.count(1) / 1000 - 0.8) < 0.038
    assert seen.count(3) > 50 and seen.count(5) > 50 and seen.count(7) == 0


def test_no_step_limit_cuts_an_episode_off() -> None:
    environment = environment_on("SFF", "FHF", "FGF")
    for _ in range(300):
        step = environment.step("Up")
    assert not step.terminated and not step.truncated


# The baseline policies


def test_the_oracle_takes_a_shortest_path_and_as_few_turns_as_it_can() -> None:
    # P _ _     right is barred by a hole; the way is down, right, right, up: two turns of two.
    environment = environment_on("SHG", "FFF", "FFF")
    first = environment.oracle(Remaining(5, 2, 10))
    assert first.actions == ("Down", "Right")
    assert first.thought == "goal is right 2, hole right"
    for action in first.actions:
        environment.step(action)
    second = environment.oracle(Remaining(4, 2, 8))
    assert (second.thought, second.actions) == ("goal is right 1 up 1, hole up", ("Right", "Up"))


def test_on_ice_that_slips_the_oracle_avoids_the_shortest_path() -> None:
    # The goal is two to the right, with a hole below either cell on the way. At a success rate of 1/3 walking right
    # falls in with probability 1/3 at each step; pushing up against the edge slips left and right and never down.
    rows = ("SFG", "HHF", "FFF")
    assert environment_on(*rows, success_rate=1.0).oracle(Remaining(5, 1, 10)).actions == ("Right",)
    assert environment_on(*rows, success_rate=1 / 3).oracle(Remaining(30, 1, 30)).actions == ("Up",)


def test_the_oracle_looks_while_it_can_and_runs_when_it_must() -> None:
    rows = ("SFF", "FFF", "FFG")
    slippery = environment_on(*rows, success_rate=0.8)
    # The goal is four actions away. With two turns left it must play two actions in each.
    assert len(slippery.oracle(Remaining(2, 2, 4)).actions) == 2
    # With four turns of two it may look after every action, and on slippery ice looking pays or costs nothing.
    patient = plan(LakeBoard(rows), 0.8, 4, 2, 8).probability(0, 4, 8)
    assert patient > plan(LakeBoard(rows), 0.8, 2, 2, 4).probability(0, 2, 4)


def test_the_oracle_walks_towards_a_goal_that_is_out_of_reach() -> None:
    # Four actions away, one left: nothing can be won, but a demonstration should not jump into the hole.
    environment = environment_on("SFF", "HFF", "FFG")
    assert environment.oracle(Remaining(1, 1, 1)).actions == ("Right",)
    assert len(environment.oracle(Remaining(1, 2, 1)).actions) == 1


def test_one_slippery_action_by_hand() -> None:
    # S G H
    # F F F     One action from S at success rate 0.8. Right: 0.8 the goal. Up: 0.8 stays, 0.1 left stays, 0.1 the goal.
    board = LakeBoard(("SGH", "FFF", "FFF"))
    one = plan(board, 0.8, 1, 1, 1)
    assert one.probability(0, 1, 1) == pytest.approx(0.8)
    assert one.sequence(0, 1, 1) == (2,)
    # Two turns of one action: 0.8, or by 0.1 up (stays at S) then 0.8, or by 0.1 down and then up, which lands on S,
    # or right (cell 4), or left (stays): the goal is not reached from there in one. 0.8 + 0.1 * 0.8 = 0.88.
    two = plan(board, 0.8, 2, 1, 2)
    assert two.probability(0, 2, 2) == pytest.approx(0.88)
    # One turn of two actions, right then right, without looking: the second counts only for who stayed at S: the same
    # 0.88. From the cell below S (probability 0.1) right leads to the middle: no goal.
    blind = plan(board, 0.8, 1, 2, 2)
    assert blind.probability(0, 1, 2) == pytest.approx(0.88)
    assert blind.sequence(0, 1, 2) == (2, 2)


@pytest.mark.parametrize("success_rate", [1.0, 0.8, 1 / 3])
@pytest.mark.parametrize("seed", range(4))
def test_the_plan_is_worth_what_exhaustive_search_finds(success_rate: float, seed: int) -> None:
    board = draw_board(seed, "train", 3, 0.7)
    model = make_lake(board, success_rate).P

    def spread(states: dict[int, float], action: int) -> dict[int, float]:
        after: dict[int, float] = {}
        for cell, mass in states.items():
            for probability, following, _, _ in model[cell][action]:
                after[following] = after.get(following, 0.0) + mass * probability
        return after

    @cache
    def best(cell: int, turns: int, actions: int) -> float:
        if board.cells[cell] in (GOAL, HOLE):
            return float(board.cells[cell] == GOAL)
        if not turns or not actions:
            return 0.0
        found = 0.0
        for length in range(1, min(2, actions) + 1):
            for sequence in product(range(4), repeat=length):
                states = {cell: 1.0}
                for action in sequence:
                    states = spread(states, action)
                found = max(found, sum(mass * best(s, turns - 1, actions - length) for s, mass in states.items()))
        return found

    planned = plan(board, success_rate, 4, 2, 6)
    for cell, turns, actions in product(range(9), range(1, 5), range(1, 7)):
        assert planned.probability(cell, turns, actions) == pytest.approx(best(cell, turns, actions), abs=1e-12)


def test_the_oracle_wins_as_often_as_the_plan_promises() -> None:
    world = FrozenLake(success_rate=0.8)
    tasks = world.tasks("test", 400)
    promised, won = [], 0
    for task in tasks:
        board = world.make(task, 0)._board
        promised.append(plan(board, 0.8, 5, 2, 10).probability(board.start, 5, 10))
        won += play(world, task, 3, "oracle").success
    # Standard error of a share of 0.9 over 400 episodes: 0.015.
    assert abs(won - sum(promised)) / len(tasks) < 0.045


def test_the_random_baseline_wins_as_often_as_is_known_of_this_lake() -> None:
    # 21 to 25 percent on RAGEN's boards (field notes); standard error over 500 boards 0.018.
    world = FrozenLake(actions_per_turn=1, turns=10)
    won = sum(play(world, task, 3, "random").success for task in world.tasks("train", 500)) / 500
    assert 0.16 < won < 0.28


def test_the_random_baseline_uses_the_whole_turn_and_no_more_than_is_left() -> None:
    environment = environment_on("SFF", "FHF", "FGF")
    generator = seeding.generator(0, "player")
    assert len(environment.random(generator, Remaining(3, 2, 5)).actions) == 2
    assert len(environment.random(generator, Remaining(3, 2, 1)).actions) == 1


# The world


def test_the_world_is_found_by_name() -> None:
    assert isinstance(make_world("frozen_lake", {"size": 5}), FrozenLake)


@pytest.mark.parametrize("parameters", [FrozenLake.presets["ragen-v2"], FrozenLake.presets["ragen-v2-no-slip"]])
def test_the_world_keeps_the_contract(parameters: dict[str, Any]) -> None:
    promised = 0.85 if parameters.get("success_rate", 1.0) < 1 else FrozenLake.oracle_success
    report = check_world(FrozenLake(**parameters), parameters=parameters, count=30, oracle_success=promised, sample=1)
    assert report.passed, report.lines()


def test_no_default_board_needs_more_actions_than_an_episode_has() -> None:
    # The longest shortest path on 4 x 4 cells, round all of the holes that leave it a path, has 11 cells.
    winding = LakeBoard(("SFFF", "HHHF", "GFHF", "HFFF"))
    assert winding.distance == 10 == FrozenLake().limits.actions
    assert max(int(task.tags["distance"]) for task in FrozenLake().tasks("test", 300)) <= 10


def test_the_presets_are_ragens_settings() -> None:
    first, second, table = (FrozenLake(**FrozenLake.presets[name]) for name in sorted(FrozenLake.presets))
    assert (first.success_rate, second.success_rate, table.success_rate) == (1 / 3, 0.8, 1.0)
    assert [world.limits.actions_per_turn for world in (first, second, table)] == [5, 2, 2]
    assert all((world.size, world.limits.turns, world.limits.actions) == (4, 5, 10) for world in (first, second, table))


def test_the_best_baseline_is_as_good_as_is_known_of_these_lakes() -> None:
    # 94.9% at success rate 0.8 (field notes); the probability's deviation over boards is 0.075, so three standard
    # errors over 150 boards are 0.018.
    world = FrozenLake(**FrozenLake.presets["ragen-v2"])
    boards = [world.make(task, 0)._board for task in world.tasks("test", 150)]
    promised = [plan(board, 0.8, 5, 2, 10).probability(board.start, 5, 10) for board in boards]
    assert abs(sum(promised) / len(promised) - 0.949) < 0.018
    # 48.4% where the ice slips two times out of three; the deviation is 0.29, so three standard errors are 0.07. Two
    # actions per turn instead of five, whose plan takes a third of a second: who looks more often loses nothing by it.
    boards = [FrozenLake().make(task, 0)._board for task in FrozenLake().tasks("test", 150)]
    promised = [plan(board, 1 / 3, 5, 2, 10).probability(board.start, 5, 10) for board in boards]
    assert abs(sum(promised) / len(promised) - 0.484) < 0.07


def test_the_instruction_speaks_of_slip_only_where_there_is_any() -> None:
    assert "slip" not in FrozenLake().instruction
    assert "33%" in FrozenLake(success_rate=1 / 3).instruction


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"size": 2}, "size must be a whole number from 3 to 12; found 2"),
        ({"size": "4"}, "size must be a whole number"),
        ({"frozen": 0}, "frozen must be a number above 0 and at most 1; found 0"),
        ({"success_rate": 1.5}, "success_rate must be a number above 0 and at most 1; found 1.5"),
        ({"turns": 0}, "turns must be"),
        ({"actions_per_turn": 6}, "actions_per_turn must be a whole number from 1 to 5; found 6"),
        ({"actions": True}, "actions must be"),
        ({"symbols": "P_OGX"}, "symbols must be six different visible characters"),
        ({"symbols": "P OGX√"}, "symbols must be six different visible characters"),
        ({"symbols": "PPOGX√"}, "symbols must be six different visible characters"),
    ],
)
def test_wrong_parameters_are_refused_by_name(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        FrozenLake(**parameters)


def test_another_symbol_set_is_shown_and_explained() -> None:
    world = FrozenLake(symbols="A.#*!+")
    text = world.make(world.tasks("train", 1)[0], 0).reset().text
    assert set(text) <= set("A.#* \n") and "A" in text and "*" in text
    assert "A you" in world.instruction


def test_a_task_of_other_parameters_is_refused() -> None:
    task = FrozenLake(size=5).tasks("train", 1)[0]
    with pytest.raises(ValueError, match=r"frozen_lake/1/4x4-p0\.8/"):
        FrozenLake().make(task, 0)
