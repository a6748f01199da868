"""Golden numbers of what is measured on trajectories, worked by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from stage_samples import turn

from envs.search import Search
from turnwise.config.agent import Agent
from turnwise.data.metrics import (
    RECORDED,
    column_value,
    ended_at,
    episode_means,
    episode_value,
    recorded_in,
    task_means,
)
from turnwise.data.trajectory import Ending, Trajectory, Turn, TurnKind
from turnwise.world import Column, Task


def trajectory(name: str, turns: Sequence[Turn], ending: Ending = Ending.FAILURE, replica: int = 0) -> Trajectory:
    return Trajectory(Task("hill", name, "test", 0), 0, replica, tuple(turns), ending, "")


# Task a, twice: two searches, one of them failed, then right; one search, and cut off. Task b, once: no search, wrong.
FIRST = trajectory(
    "a",
    [
        turn({"tool": 1.0}, 4, metrics={"searches": 1.0}),
        turn({}, 6, metrics={"searches": 1.0, "failed": 1.0}),
        turn({"exact": 1.0}),
    ],
    Ending.SUCCESS,
)
SECOND = trajectory("a", [turn({"tool": 1.0}, 2, metrics={"searches": 1.0})], Ending.TURN_LIMIT, replica=1)
THIRD = trajectory("b", [turn({"exact": 0.5}, 5)], Ending.FAILURE)
TASK_SET = [FIRST, SECOND, THIRD]


def test_an_episodes_value_is_its_own_or_a_sum_over_its_turns() -> None:
    assert [episode_value(each, "success") for each in TASK_SET] == [1.0, 0.0, 0.0]
    assert [episode_value(each, "turns") for each in TASK_SET] == [3.0, 1.0, 1.0]
    assert [episode_value(each, "reply_tokens") for each in TASK_SET] == [13.0, 2.0, 5.0]
    assert [episode_value(each, "searches") for each in TASK_SET] == [2.0, 1.0, 0.0]
    assert [episode_value(each, "exact") for each in TASK_SET] == [1.0, 0.0, 0.5]


def test_the_mean_of_a_reward_is_the_rewards_whatever_it_is_called() -> None:
    names = ("success", "turns", "turns/goal", "reply_tokens", "attempts", "world/goal")
    means = episode_means([trajectory("a", [turn(dict.fromkeys(names, 0.25)), turn({"success": 0.5})], Ending.SUCCESS)])
    assert {name: means[f"reward/{name}"] for name in names} == {**dict.fromkeys(names, 0.25), "success": 0.75}
    assert (means["success"], means["turns"]) == (1.0, 2.0)


def test_a_limit_cut_off_what_has_as_many_acting_turns_in_its_last_attempt_and_was_truncated() -> None:
    act, plan, again = turn({}), replace(turn({}), kind=TurnKind.PLAN), replace(turn({}), attempt=1)
    for ending in (Ending.TURN_LIMIT, Ending.ACTION_LIMIT):
        assert ended_at(trajectory("a", [plan, act, act], ending), 2)
        assert not ended_at(trajectory("a", [plan, act, act], ending), 3)
    assert not any(ended_at(trajectory("a", [act, act], ending), 2) for ending in (Ending.SUCCESS, Ending.FAILURE))
    twice = replace(trajectory("a", [act, act, again], Ending.TURN_LIMIT), earlier_endings=(Ending.TURN_LIMIT,))
    assert ended_at(twice, 1) and not ended_at(twice, 2)


def test_a_column_with_a_denominator_has_no_value_where_that_is_0() -> None:
    failed = Column("failed", "failed", per="searches")
    assert [column_value(each, failed) for each in TASK_SET] == [0.5, 0.0, None]
    assert [column_value(each, Column("exact", "exact")) for each in TASK_SET] == [1.0, 0.0, 0.5]


def test_replicas_of_a_task_are_averaged_before_tasks_are() -> None:
    # a: (1 + 0) / 2 = 0.5; b: 0.5. Over the three episodes the mean of `turns` were 5/3; over the two tasks it is 3/2.
    assert [*task_means(TASK_SET, Column("exact", "exact")).values()] == [0.5, 0.5]
    assert [*task_means(TASK_SET, Column("turns", "turns")).values()] == [2.0, 1.0]
    assert [*task_means([], Column("turns", "turns")).values()] == []


def test_tasks_without_a_value_are_left_out_and_the_order_is_that_of_the_tasks() -> None:
    failed = Column("failed", "failed", per="searches")
    # a: (1/2 + 0/1) / 2 = 0.25, each episode's share counting once; b never searched.
    assert [*task_means(TASK_SET, failed).values()] == [0.25]
    assert [*task_means([THIRD, FIRST, SECOND], Column("turns", "turns")).values()] == [1.0, 2.0]
    # An episode without a search is left out of its own task's mean, too.
    silent = trajectory("a", [turn({})], replica=2)
    assert [*task_means([FIRST, silent], failed).values()] == [0.5]


def test_means_are_over_episodes_and_hold_everything_that_was_recorded() -> None:
    assert episode_means(TASK_SET) == pytest.approx(
        {
            "reward/exact": 1.5 / 3,
            "reward/tool": 2 / 3,
            "world/failed": 1 / 3,
            "world/searches": 3 / 3,
            "success": 1 / 3,
            "turns": 5 / 3,
            "reply_tokens": 20 / 3,
            "ending/success": 1 / 3,
            "ending/failure": 1 / 3,
            "ending/turn_limit": 1 / 3,
            "ending/action_limit": 0.0,
            "ending/token_budget": 0.0,
            "ending/invalid_limit": 0.0,
            "ending/world_lost": 0.0,
        }
    )
    assert episode_means([]) == {}


def agent(**of_mode: object) -> Agent:
    limits = {"format": "search", "instruction": False, "maximum_reply_tokens": 8, "context_tokens": 64}
    summary = {"policy": "summary", "every": 2, "summary_tokens": 8}
    return Agent.model_validate({**limits, **({"mode": of_mode, "context": summary} if of_mode else {})})


def test_what_may_be_recorded_are_all_rewards_what_the_columns_show_and_what_the_agent_is_asked_for() -> None:
    plain = {
        *("reward/tool_execution", "reward/answer_in_results", "reward/exact_match", "reward/answer_present"),
        *("reward/format", "reward/invalid_turn"),
        *("world/searches", "world/superfluous_search"),
    }
    assert recorded_in(Search(), agent()) == plain
    assert recorded_in(Search(), agent(), ("tags",)) == plain | {"reward/tags"}
    assert recorded_in(Search(), agent(name="plan", tokens=8)) == plain | {"turns/plan", "turns/summary"}
    again = recorded_in(Search(), agent(name="reflect", tokens=8, attempts=2))
    assert again == plain | {"turns/reflect", "turns/summary", "first_success", "attempts"}
    assert all(name.startswith(RECORDED) for name in again)


def test_what_may_be_recorded_has_a_mean_also_where_no_episode_has_it() -> None:
    of_all = {"reward/exact", "world/searches"}
    of_none = {"reward/invalid_turn": 0.0, "world/repeated": 0.0, "turns/plan": 0.0}
    at_once = {"first_success": 1 / 3, "attempts": 1.0}
    assert episode_means(TASK_SET, recorded={*of_all, *of_none, *at_once}) == {
        **episode_means(TASK_SET),
        **of_none,
        **at_once,
    }
    assert episode_means([], recorded={"reward/exact"}) == {}, "without an episode nothing is known"


def test_the_shares_of_the_endings_count_lost_episodes_and_sum_to_one() -> None:
    means = episode_means(TASK_SET, lost_count=1)
    assert means["ending/world_lost"] == means["ending/success"] == 1 / 4
    assert sum(value for name, value in means.items() if name.startswith("ending/")) == 1.0
    assert {**means, **episode_means(TASK_SET)} == episode_means(TASK_SET)


def test_turns_are_those_that_act_and_the_others_are_counted_by_kind() -> None:
    planned = replace(turn({}, 5, metrics={}), kind=TurnKind.PLAN)
    with_plan = trajectory("a", [planned, turn({}), turn({})])
    means = episode_means([with_plan, FIRST])
    assert means["turns"] == 5 / 2 and means["turns/plan"] == 1 / 2
    assert "turns/summary" not in means
    assert episode_value(with_plan, "turns/plan") == 1.0 and episode_value(with_plan, "turns/reflect") == 0.0


def test_a_column_may_count_the_tasks_with_a_tag_alone() -> None:
    def on(world: str, name: str, ending: Ending, replica: int = 0) -> Trajectory:
        return Trajectory(Task("mixture", name, "test", 0, {"world": world}), 0, replica, (), ending, "")

    task_set = [
        on("lake", "a", Ending.SUCCESS),
        on("lake", "a", Ending.FAILURE, 1),
        on("shop", "b", Ending.FAILURE),
        THIRD,
    ]
    lake = Column("success lake", "success", tag=("world", "lake"))
    assert [column_value(each, lake) for each in task_set] == [1.0, 0.0, None, None]
    assert [*task_means(task_set, lake).values()] == [0.5]
    assert task_means(task_set, Column("success nowhere", "success", tag=("world", "nowhere"))) == {}


def test_means_of_several_worlds_tell_the_success_in_each() -> None:
    def on(world: str, ending: Ending) -> Trajectory:
        return Trajectory(Task("mixture", world, "test", 0, {"world": world}), 0, 0, (), ending, "")

    means = episode_means([on("lake", Ending.SUCCESS), on("lake", Ending.FAILURE), on("shop", Ending.FAILURE)])
    assert {name: value for name, value in means.items() if name.startswith("success")} == pytest.approx(
        {"success": 1 / 3, "success/lake": 1 / 2, "success/shop": 0.0}
    )
