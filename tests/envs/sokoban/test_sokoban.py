"""Sokoban's episodes, its players and the world."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envs.sokoban import Sokoban
from envs.sokoban.generation import SokobanBoard
from envs.sokoban.rooms import ACTIONS, read_rows
from envs.sokoban.world import SokobanEnvironment
from turnwise import seeding
from turnwise.checking import check_world
from turnwise.checking.playing import play
from turnwise.world import Remaining, ScriptedAction, make_world

UP, DOWN, LEFT, RIGHT = range(4)


def environment_on(*rows: str, **parameters: Any) -> SokobanEnvironment:
    room, start = read_rows(rows)
    environment = SokobanEnvironment(Sokoban(**parameters), SokobanBoard(room, start, 1))
    environment.reset()
    return environment


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
    assert environment.oracle(Remaining(5, 2, 10)) == ScriptedAction(
        "box right 1, target up 1 right 2, push right", ("Right", "Right")
    )
    for action in ("Right", "Right"):
        environment.step(action)
    # The box is next to the player now, and has to go up: he walks round it first.
    assert environment.oracle(Remaining(4, 2, 8)) == ScriptedAction(
        "box right 1, target up 1, push up", ("Down", "Right")
    )
    assert environment.oracle(Remaining(4, 5, 8)).actions == ("Down", "Right", "Up")
    assert environment.oracle(Remaining(4, 5, 1)).actions == ("Down",)


def test_the_oracle_goes_on_where_too_few_actions_are_left() -> None:
    environment = environment_on("######", "#---.#", "#@$--#", "#----#", "#----#", "######")
    assert environment.oracle(Remaining(1, 5, 3)).actions == ("Right", "Right", "Down")


def test_the_oracle_admits_that_a_box_is_stuck_and_moves_all_the_same() -> None:
    environment = environment_on("######", "#$---#", "#@---#", "#--.-#", "#----#", "######")
    assert environment.oracle(Remaining(5, 2, 10)) == ScriptedAction("no way found", ("Down",))


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
