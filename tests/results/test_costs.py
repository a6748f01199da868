"""Runs at an equal cost: what each axis counts, the straight line between evaluations, and the verdicts on it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stage_samples import saved, trajectory, turn

from turnwise.config.schema import Budget, SeedsUntil
from turnwise.data.outcomes import LeftOut
from turnwise.data.trajectory import Ending, TurnKind
from turnwise.data.trajectory_files import write_trajectories
from turnwise.results.cells import task_means
from turnwise.results.costs import Course, at_equal_budgets, at_written_budget, cost_curves, costs_of, course_of
from turnwise.statistics import ReferencePoints, Results, judge
from turnwise.statistics.curves import Spending
from turnwise.store import Reference, default_store
from turnwise.world import World, make_world

SPENDING = Spending("rollout", "policy", "evaluation", frozenset({"evaluation"}))


@pytest.fixture(scope="module", autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TURNWISE_HOME", str(tmp_path_factory.mktemp("home")))
        yield


def lake() -> World:
    return make_world("frozen_lake", {"size": 3})


def evaluation(solved: Mapping[str, int], episodes: int = 4) -> Reference:
    """An evaluation in which so many of a task's episodes succeed."""
    with default_store().write("evaluation") as draft:
        (draft.folder / "sampled").mkdir()
        played = [
            trajectory(group, replica, [turn()], Ending.SUCCESS if replica < count else Ending.FAILURE, task)
            for group, (task, count) in enumerate(solved.items())
            for replica in range(episodes)
        ]
        write_trajectories(draft.folder / "sampled", played)
    return draft.reference


def iteration(
    number: int, tokens: int, after: Mapping[str, int] | None = None, trained: int = 30
) -> dict[str, Reference]:
    """An iteration of two episodes, of three turns that act and one that plans, with three optimizer steps."""
    plan = replace(turn(), kind=TurnKind.PLAN)
    rollout = saved([trajectory(number, 0, [plan, turn()]), trajectory(number, 1, [turn(), turn(tokens=number)])])
    default_store().record_clock(rollout, {"seconds": 2.0, "sampled_tokens": float(tokens)})
    with default_store().write("policy") as draft:
        (draft.folder / "content.txt").write_text(f"{number} {tokens}")
        draft.metrics.update(tokens=30.0, optimizer_steps=3.0)
    default_store().record_clock(draft.reference, {"seconds": 1.5})
    made = {"rollout": rollout, "policy": draft.reference}
    return made if after is None else {**made, "evaluation": evaluation(after)}


def course(
    variant: str, seed: int, start: Mapping[str, int], made: Sequence[Mapping[str, Reference]], ended: bool = False
) -> Course:
    return course_of(variant, seed, evaluation(start), made, [], SPENDING, ended=ended)


def two_variants() -> list[Course]:
    """Two seeds each; `slow` samples twice as many tokens for what it learns."""
    start = {"x": 0, "y": 0}
    return [
        course("quick", 1, start, [iteration(1, 100, {"x": 2, "y": 0}), iteration(2, 100, {"x": 4, "y": 4})]),
        course("quick", 2, start, [iteration(3, 100, {"x": 4, "y": 2}), iteration(4, 100, {"x": 4, "y": 2})]),
        course("slow", 1, start, [iteration(5, 200, {"x": 2, "y": 0}), iteration(6, 200, {"x": 4, "y": 4})]),
        course("slow", 2, start, [iteration(7, 200, {"x": 0, "y": 0}), iteration(8, 200, {"x": 2, "y": 4})]),
    ]


def test_every_axis_counts_what_its_name_says() -> None:
    made = [iteration(1, 100), iteration(2, 60, {"x": 4})]
    found = course("a", 1, {"x": 0}, made)
    assert {axis: list(spent) for axis, spent in found.spent.items()} == {
        "iterations": [0, 2],
        "sampled_tokens": [0, 160],
        "trained_tokens": [0, 60],
        "environment_steps": [0, 6],  # plans are no steps of the world
        "optimizer_steps": [0, 6],
        "seconds": [0, 7],
    }


def test_an_update_that_left_the_policy_as_it_was_costs_nothing_of_it() -> None:
    first, second = iteration(1, 100), iteration(2, 100, {"x": 4})
    found = course("a", 1, {"x": 0}, [first, {**second, "policy": first["policy"]}])
    assert (found.reached("trained_tokens"), found.reached("optimizer_steps")) == (30, 3)
    assert (found.reached("sampled_tokens"), found.reached("seconds")) == (200, 5.5)


def test_an_axis_that_was_not_recorded_is_left_out() -> None:
    made = iteration(99, 100, {"x": 4})
    default_store().prune(made["rollout"], ["turns.parquet", "trajectories.parquet"])
    with default_store().write("policy") as draft:
        (draft.folder / "content.txt").write_text("made before its steps were counted")
    runs = [course("a", 1, {"x": 0}, [{**made, "policy": draft.reference}])]
    assert set(runs[0].spent) == {"iterations", "sampled_tokens"}
    said = at_written_budget(runs, lake(), Budget(optimizer_steps=3))
    assert (said.judgement, said.because) == (None, "it was not recorded what a seed 1 spent")


def test_at_an_equal_cost_each_run_is_between_its_evaluations() -> None:
    by_axis = {each.budget: each for each in at_equal_budgets(two_variants(), lake())}
    assert {axis: each.spent for axis, each in by_axis.items()} == {
        "iterations": 2,
        "sampled_tokens": 200,
        "trained_tokens": 60,
        "environment_steps": 6,
        "optimizer_steps": 6,
        "seconds": 7,
    }
    # At 200 tokens `quick` is at its end, 1 and 0.75; `slow` is after its first iteration, 0.25 and 0.
    at = by_axis["sampled_tokens"]
    assert {name: shown.sample for name, shown in at.shown.items()} == {"quick": (1.0, 0.75), "slow": (0.25, 0.0)}
    ((first, second, difference),) = at.differences
    assert (first, second, difference.value) == ("quick", "slow", 0.75)
    assert by_axis["iterations"].differences[0][2].value == pytest.approx(0.875 - 0.875)


def test_the_verdict_at_a_budget_is_that_of_the_interpolated_tasks() -> None:
    found = at_written_budget(two_variants(), lake(), Budget(sampled_tokens=150))
    assert found.judgement is not None and found.heading == "150 sampled tokens"
    # Task by task, by hand: `quick` half way to its second evaluation, `slow` three quarters of the way to its first.
    by_hand = judge(
        "success at 150 sampled tokens",
        {
            "quick": Results({1: {"x": 0.75, "y": 0.5}, 2: {"x": 1.0, "y": 0.5}}),
            "slow": Results({1: {"x": 0.375, "y": 0.0}, 2: {"x": 0.0, "y": 0.0}}),
        },
        frames=dict.fromkeys(("quick", "slow"), ReferencePoints(Results({0: {"x": 0.0, "y": 0.0}}))),
    )
    assert found.judgement == by_hand


@given(counts=st.lists(st.lists(st.integers(0, 4), min_size=6, max_size=6), min_size=4, max_size=4))
def test_a_budget_of_the_last_evaluation_gives_the_verdict_of_the_last_policies(counts: list[list[int]]) -> None:
    courses = [
        course(
            variant,
            seed,
            {"x": 0, "y": 1},
            [iteration(10 * place + n, 50, {"x": each[n], "y": each[n + 3]}) for n in range(3)],
        )
        for place, (variant, seed, each) in enumerate(zip("aabb", (1, 2, 1, 2), counts, strict=True))
    ]
    found = at_written_budget(courses, lake(), Budget(sampled_tokens=150)).judgement
    column = lake().primary_column
    last: dict[str, dict[int, Mapping[str, float]]] = {"a": {}, "b": {}}
    for each in courses:
        last[each.variant][each.seed] = task_means(each.evaluations[-1], lake(), column)
    start = ReferencePoints(Results({0: {"x": 0.0, "y": 0.25}}))
    today = judge(
        "success at 150 sampled tokens",
        {name: Results(runs) for name, runs in last.items()},
        frames={"a": start, "b": start},
    )
    assert found == today


def raced(ends: Mapping[str, Sequence[tuple[int, ...]]]) -> list[Course]:
    """Runs that begin at 0 and spend 200 tokens, by variant and seed with what each solves of every task at the end."""
    return [
        course(name, seed, dict.fromkeys(tasks, 0), [iteration(seed, 200, dict(zip(tasks, solved, strict=True)))])
        for name, of_seeds in ends.items()
        for seed, solved in enumerate(of_seeds, 1)
        for tasks in ["stuvwxyz"[: len(solved)]]
    ]


def until(at_most: int) -> SeedsUntil:
    return SeedsUntil(until="decided", at_most=at_most)


def test_where_seeds_were_added_one_look_at_a_budget_is_the_ordinary_verdict() -> None:
    courses = raced({"a": [(4, 3), (4, 4), (3, 4)], "b": [(1, 2), (0, 2), (1, 0)]})
    looked = at_written_budget(courses, lake(), Budget(sampled_tokens=100), until(3)).judgement
    fixed = at_written_budget(courses, lake(), Budget(sampled_tokens=100)).judgement
    assert looked is not None and fixed is not None and "at most 3" in looked.notes[-1]
    (of_look,), (of_test,) = looked.pairs, fixed.pairs
    # Half way to 11/12 and 1/4 of the tasks: 1/3 apart.
    assert of_look.difference.value == of_test.difference.value == pytest.approx((11 / 12 - 1 / 4) / 2)
    assert of_look.corrected == pytest.approx(of_test.corrected, rel=4e-3)
    gains = [(one.gain, other.gain) for one, other in zip(looked.standings, fixed.standings, strict=True)]
    assert len(gains) == 2
    for gain, ordinary in gains:
        assert gain is not None and ordinary is not None
        assert gain.difference.value == ordinary.difference.value and gain.p == pytest.approx(ordinary.p, rel=4e-3)


def test_what_a_look_at_a_budget_decided_later_seeds_do_not_take_back() -> None:
    all_solved, none = (4,) * 8, (0,) * 8
    better, worse = [all_solved] * 3, [(1, *none[1:]), (*none[1:], 1), none]
    early = raced({"a": better, "b": worse})
    late = raced({"a": [*better, none, none], "b": [*worse, all_solved, all_solved]})
    pairs = []
    for courses in (early, late):
        found = at_written_budget(courses, lake(), Budget(sampled_tokens=200), until(5)).judgement
        assert found is not None
        pairs.append(found.pairs)
    assert pairs[0] == pairs[1] and pairs[0][0].corrected is not None and pairs[0][0].corrected < 0.05


def test_a_look_at_a_budget_does_without_runs_that_a_fault_has_left_out() -> None:
    courses = raced({"a": [(4, 3), (4, 4), (3, 4)], "b": [(1, 2), (0, 2), (1, 0)]})
    fault = LeftOut("b", 2, "world_lost", "what was seen")
    made = [each for each in courses if (each.variant, each.seed) != ("b", 2)]
    waiting = at_written_budget(made, lake(), Budget(sampled_tokens=200), until(3)).judgement
    looked = at_written_budget(made, lake(), Budget(sampled_tokens=200), until(3), [fault]).judgement
    assert waiting is not None and waiting.pairs == []  # a run that is still to come
    assert looked is not None and looked.pairs[0].difference.value == pytest.approx((0.875 * 2 - 0.375 - 0.125) / 2)


def test_nothing_is_said_beyond_the_shortest_run() -> None:
    found = at_written_budget(two_variants(), lake(), Budget(sampled_tokens=201))
    assert found.judgement is None
    assert found.because == (
        "2 of 4 runs had not spent as much by their last evaluation, the least quick seed 1 with 200; nothing is said "
        "beyond the shortest run"
    )
    assert at_written_budget(two_variants(), lake(), Budget(sampled_tokens=200)).judgement is not None


def test_a_run_that_was_ended_keeps_its_last_value_and_limits_no_budget() -> None:
    went_on = course("a", 1, {"x": 0}, [iteration(1, 100, {"x": 2}), iteration(2, 100, {"x": 4})])
    ended = course("a", 2, {"x": 0}, [iteration(3, 100, {"x": 1})], ended=True)
    (at,) = [each for each in at_equal_budgets([went_on, ended], lake()) if each.budget == "sampled_tokens"]
    assert (at.spent, at.shown["a"].sample) == (200, (1.0, 0.25))


def test_of_several_evaluations_at_one_cost_the_last_counts() -> None:
    first = iteration(1, 100, {"x": 2})
    second = {**iteration(2, 100, {"x": 3}), "policy": first["policy"]}
    curves = {each.axis: each.points for each in cost_curves([course("a", 1, {"x": 0}, [first, second])], lake())}
    assert curves["iterations"] == [(0, 0), (1, 0.5), (2, 0.75)]
    assert curves["optimizer_steps"] == [(0, 0), (3, 0.75)]


def test_without_a_budget_there_are_costs_and_no_verdicts() -> None:
    found = costs_of(two_variants(), lake(), None)
    assert found is not None and found.at_budget is None and len(found.at_equal) == 6
    assert len(found.curves) == 4 * 6
