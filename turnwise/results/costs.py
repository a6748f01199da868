"""What runs had spent before each evaluation on the way, and how they compare at an equal cost.

A cost has an axis: iterations, sampled tokens, trained tokens, steps of the environment, steps of the optimizer, or
seconds of all stages but the evaluations. A run's results at a budget lie on the straight line, task by task, between
the evaluations before and after it; no run is continued beyond its last evaluation, except one that was ended early,
which keeps its last value (`turnwise.statistics.curves`). On these results the variants are compared by the same test
as on the test task set. The tasks are those of the validation task set, which the choice of hyperparameters may know.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import TypeVar

import pyarrow.parquet as parquet

from turnwise.config.schema import BUDGET_AXES, Budget, SeedsUntil
from turnwise.data.outcomes import LeftOut, NamedRun
from turnwise.data.trajectory import TurnKind
from turnwise.data.trajectory_files import TURNS_FILE
from turnwise.results.cells import cell, task_means
from turnwise.results.report_data import SHARE, AtWrittenBudget, CostCurve, Costs
from turnwise.statistics import ReferencePoints, Results, judge, student_over_seeds
from turnwise.statistics.curves import AtEqualBudget, Spending, carried_forward, equal_budget, interpolated
from turnwise.statistics.until_decided import Looks, with_looks, worth_having
from turnwise.statistics.verdict import compare
from turnwise.store import Reference, default_store
from turnwise.world import World

Value = TypeVar("Value")


@dataclass(frozen=True)
class Course(NamedRun):
    """The evaluations of one run on the way, with what had been spent before each."""

    variant: str
    seed: int
    ended: bool
    """Whether a guard or an alarm ended it early."""
    evaluations: Sequence[Reference]
    """On the validation task set; the first is that of the policy that training began with."""
    spent: Mapping[str, Sequence[float]]
    """By axis, what had been spent before each evaluation; an axis that was not measured is missing."""

    def reached(self, axis: str) -> float:
        """What had been spent before the last evaluation."""
        return self.spent[axis][-1]


def course_of(
    variant: str,
    seed: int,
    start: Reference,
    iterations: Iterable[Mapping[str, Reference]],
    prepared: Iterable[Reference],
    spending: Spending,
    *,
    ended: bool = False,
) -> Course:
    """The course of a run: from its first evaluation, what each iteration made, and what it did not have to pay for."""
    totals: dict[str, float | None] = dict.fromkeys(BUDGET_AXES, 0.0)
    evaluations, spent = [start], {axis: [0.0] for axis in BUDGET_AXES}
    paid_artifacts = set(prepared)
    for artifacts in iterations:
        new = {reference for name, reference in artifacts.items() if name not in spending.free} - paid_artifacts
        paid_artifacts |= new
        for axis, total in totals.items():
            cost = None if total is None else _cost(axis, artifacts, new, spending)
            totals[axis] = None if total is None or cost is None else total + cost
        if spending.evaluation in artifacts:
            evaluations.append(artifacts[spending.evaluation])
            for axis, total in totals.items():
                if total is not None:
                    spent[axis].append(total)
    return Course(
        variant, seed, ended, evaluations, {axis: spent[axis] for axis, total in totals.items() if total is not None}
    )


def costs_of(
    courses: Sequence[Course],
    world: World,
    budget: Budget | None,
    until: SeedsUntil | None = None,
    left_out: Sequence[LeftOut] = (),
) -> Costs | None:
    """How runs compare at an equal cost; None where no axis was measured. Further arguments: `at_written_budget`."""
    at_equal = at_equal_budgets(courses, world)
    at_budget = None if budget is None else at_written_budget(courses, world, budget, until, left_out)
    if not at_equal and at_budget is None:
        return None
    column = world.primary_column
    return Costs(column.heading, SHARE if column.percent else "", cost_curves(courses, world), at_equal, at_budget)


def cost_curves(courses: Sequence[Course], world: World) -> list[CostCurve]:
    """For every axis that all runs have, the curve of each run: the primary metric, sampled, against what was spent."""
    return [
        CostCurve(axis, course.variant, course.seed, _ascending(course, axis, values))
        for course in courses
        for values in [[cell(evaluation, world, world.primary_column) for evaluation in course.evaluations]]
        for axis in measured_axes(courses)
    ]


def measured_axes(courses: Sequence[Course]) -> list[str]:
    """The axes on which every run has spent something by its last evaluation."""
    return [axis for axis in BUDGET_AXES if all(axis in each.spent and each.reached(axis) > 0 for each in courses)]


def at_equal_budgets(courses: Sequence[Course], world: World) -> list[AtEqualBudget]:
    """Compare the variants on each axis at the largest budget that every run has spent."""
    return [_at_equal_budget(courses, world, axis) for axis in measured_axes(courses)]


def at_written_budget(
    courses: Sequence[Course],
    world: World,
    budget: Budget,
    until: SeedsUntil | None = None,
    left_out: Sequence[LeftOut] = (),
) -> AtWrittenBudget:
    """The verdicts at the budget that was written down before the runs, or why there are none.

    `until`: by what rule seeds were added, for the test task set; the verdicts are then those of as many looks at the
    budget. `left_out`: further runs, which a fault has left out.
    """
    axis, amount = budget.axis, budget.amount
    at_budget = AtWrittenBudget(axis, amount, budget.heading, None)
    if unmeasured := [each.name for each in courses if axis not in each.spent]:
        return replace(at_budget, because=f"it was not recorded what {', '.join(unmeasured)} spent")
    if short_runs := [each for each in courses if not each.ended and each.reached(axis) < amount]:
        least = min(short_runs, key=lambda each: each.reached(axis))
        return replace(
            at_budget,
            because=f"{len(short_runs)} of {len(courses)} runs had not spent as much by their last evaluation, the "
            f"least {least.name} with {least.reached(axis):,.0f}; nothing is said beyond the shortest "
            "run",
        )
    column = world.primary_column
    first = {course.variant: task_means(course.evaluations[0], world, column) for course in reversed(courses)}
    starts = {name: Results({0: means}) for name, means in first.items() if means}
    results = _results(courses, world, axis, amount)
    judgement = judge(
        f"{column.heading} at {budget.heading}",
        results,
        frames={name: ReferencePoints(starts.get(name)) for name in results},
        share=column.percent,
    )
    if until is not None:
        runs = {name: dict(variant_results.runs) for name, variant_results in results.items()}
        for each in left_out:
            runs.setdefault(each.variant, {})[each.seed] = {}
        judgement = with_looks(judgement, Looks(runs, starts, until, worth=worth_having(until, column.percent)))
    return replace(at_budget, judgement=judgement)


def _at_equal_budget(courses: Sequence[Course], world: World, axis: str) -> AtEqualBudget:
    within = (0.0, 1.0) if world.primary_column.percent else (float("-inf"), float("inf"))
    spent = equal_budget([each.reached(axis) for each in courses], [each.ended for each in courses])
    results = _results(courses, world, axis, spent)
    return AtEqualBudget(
        axis,
        spent,
        {name: student_over_seeds(list(each.means.values()), within=within) for name, each in results.items()},
        [
            (one, other, compare(one, results[one], other, results[other]).difference)
            for one, other in itertools.combinations(results, 2)
        ],
    )


def _results(courses: Sequence[Course], world: World, axis: str, budget: float) -> dict[str, Results]:
    """By variant, the results of its runs at the budget."""
    runs: dict[str, dict[int, dict[str, float]]] = {}
    for course in courses:
        runs.setdefault(course.variant, {})[course.seed] = _tasks_at(course, world, axis, budget)
    return {name: Results(variant_runs) for name, variant_runs in runs.items()}


def _tasks_at(course: Course, world: World, axis: str, budget: float) -> dict[str, float]:
    """The mean of each task at the budget, of the tasks that both evaluations around it have."""
    evaluations = _ascending(course, axis, course.evaluations)
    points = [
        (spent, task_means(evaluation, world, world.primary_column))
        for spent, evaluation in _around(evaluations, budget)
    ]
    return {
        task: interpolated(carried_forward([(spent, means[task]) for spent, means in points], budget), budget)
        for task in points[0][1]
        if all(task in means for _, means in points)
    }


def _around(evaluations: Sequence[tuple[float, Value]], budget: float) -> Sequence[tuple[float, Value]]:
    """The last evaluation within a budget, and the one after it unless the first is at the budget or there is none."""
    within = [each for each in evaluations if each[0] <= budget]
    return within[-1:] if within[-1][0] == budget else evaluations[len(within) - 1 : len(within) + 1]


def _ascending(course: Course, axis: str, values: Sequence[Value | None]) -> list[tuple[float, Value]]:
    """(spent, value) of each evaluation that has one; of several after the same cost, the last."""
    values_by_cost = {
        spent: value for spent, value in zip(course.spent[axis], values, strict=True) if value is not None
    }
    return list(values_by_cost.items())


def _cost(axis: str, artifacts: Mapping[str, Reference], new: Set[Reference], spending: Spending) -> float | None:
    """The cost of one iteration, given its new artifacts; None where it was not recorded.

    A policy that an update left unchanged is not new and costs nothing.
    """
    store, rollout, update = default_store(), artifacts[spending.sampling], artifacts.get(spending.update)
    if axis == "iterations":
        return 1.0
    if axis == "sampled_tokens":
        return store.clock(rollout).get("sampled_tokens")
    if axis == "environment_steps":
        return _acting_turns(rollout)
    if axis == "seconds":
        clocks = [seconds_of(reference) for reference in sorted(new, key=str)]
        return None if None in clocks else sum(seconds for seconds in clocks if seconds is not None)
    metric = {"trained_tokens": "tokens", "optimizer_steps": "optimizer_steps"}[axis]
    return store.metrics(update).get(metric) if update in new and update is not None else 0.0


def _acting_turns(rollout: Reference) -> float | None:
    """The turns of a rollout that the world answered; None where its episodes were pruned."""
    store = default_store()
    if store.pruned(rollout, [TURNS_FILE]) or not (store.folder(rollout, [TURNS_FILE]) / TURNS_FILE).is_file():
        return None
    kinds = parquet.ParquetFile(store.folder(rollout, [TURNS_FILE]) / TURNS_FILE).read(["kind"])["kind"]
    return float(kinds.to_pylist().count(TurnKind.ACT.value))


def seconds_of(artifact: Reference) -> float | None:
    """The seconds that it took to make an artifact; None where they were not recorded."""
    clock = default_store().clock(artifact)
    if "seconds" not in clock or "rounds" not in default_store().metrics(artifact):
        return clock.get("seconds")
    # The own clock of a rollout with several rounds covers only their concatenation, so the sampling is added.
    return clock["seconds"] + clock.get("sampling_seconds", 0.0) + clock.get("world_seconds", 0.0)
