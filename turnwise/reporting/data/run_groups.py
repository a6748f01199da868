"""Groups recorded runs for comparison: a group is a variant of an ablation, with one run per seed."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from turnwise.data.outcomes import LeftOut, run_name
from turnwise.data.task_sets import read_task_set, task_set_digest
from turnwise.errors import ConfigurationError
from turnwise.results.cells import WARM_START, cell, greedy_column, task_means, whole_curve
from turnwise.results.costs import at_equal_budgets, course_of
from turnwise.results.outcomes import Outcomes, collected, ended_run
from turnwise.statistics import Interval, Judgement, ReferencePoints, Results, judge, over_tasks
from turnwise.statistics.curves import AtEqualBudget, Points, Spending
from turnwise.statistics.evaluation_protocol import circumstances
from turnwise.store import default_store
from turnwise.tracking.finding import RecordedRun
from turnwise.tracking.library import PARENT
from turnwise.tracking.runs import FAILURE
from turnwise.world import Column, World

_logger = logging.getLogger(__name__)


@dataclass
class Group:
    """One variant of one ablation."""

    name: str
    runs: dict[int, RecordedRun] = field(default_factory=dict)
    """The runs of the group that are compared, by seed; also those that were ended early."""
    left_out: dict[int, RecordedRun] = field(default_factory=dict)
    """Those that a fault has left out, by seed."""

    @property
    def world(self) -> World:
        """The world of its runs."""
        return next(iter(self.runs.values())).artifacts.world


def grouped(runs: Sequence[RecordedRun]) -> list[Group]:
    """Group the runs by variant, and by ablation if there are several; duplicates are dropped and the order is kept.

    A variant of which a fault has left out every run has no group, and a warning says so.

    Raises ConfigurationError for a run that has not been tested, for two runs of a group with the same seed, and where
    no run is left.
    """
    distinct = {run.id: run for run in runs}.values()
    ablations = _ablations(distinct)
    groups: dict[str, Group] = {}
    for run in distinct:
        name = run.artifacts.variant
        if len(ablations) > 1:
            name = f"{ablations[run.tags.get(PARENT, '')]}: {name}"
        if run.left_out:
            groups.setdefault(name, Group(name)).left_out[run.artifacts.seed] = run
            continue
        if run.artifacts.test is None:
            raise ConfigurationError(
                f"a run must have been tested to be compared; {run.name} ({run.id[:8]}) of {run.ablation} "
                "has not been: let it end, or leave it out",
                "TW-untested-run",
            )
        group = groups.setdefault(name, Group(name))
        if run.artifacts.seed in group.runs:
            both = f"{group.runs[run.artifacts.seed].id[:8]} and {run.id[:8]}"
            raise ConfigurationError(
                f"a seed must have one run; {name} has two with seed {run.artifacts.seed}: {both}: name one by id",
                "TW-repeated-seeds",
            )
        group.runs[run.artifacts.seed] = run
    missing = [name for name, group in groups.items() if not group.runs]
    if len(missing) == len(groups):
        raise ConfigurationError(
            f"a run must be sound to be compared; a fault has left out all of {', '.join(missing)}", "TW-faulty-runs"
        )
    for name in missing:
        _logger.warning("%s is not compared: a fault has left out every run of it", name)
    return [group for group in groups.values() if group.runs]


def outcomes_of(groups: Sequence[Group]) -> Outcomes | None:
    """The runs that were ended early or left out, under the names of their groups; None where there are none."""
    ended = [
        ended_run(group.name, seed, run.ended)
        for group in groups
        for seed, run in sorted(group.runs.items())
        if run.ended is not None
    ]
    left_out = [
        LeftOut(variant=group.name, seed=seed, by=run.left_out, message=run.tags.get(FAILURE, ""))
        for group in groups
        for seed, run in sorted(group.left_out.items())
    ]
    return collected([group.name for group in groups for _ in group.runs], ended, left_out)


def _ablations(runs: Iterable[RecordedRun]) -> dict[str, str]:
    """The names of the runs' ablations by their ids; those of one name have their ids in them."""
    names = {run.tags.get(PARENT, ""): run.ablation for run in runs}
    count = Counter(names.values())
    return {parent: f"{name} {parent[:6]}" if count[name] > 1 else name for parent, name in names.items()}


def how_tested(groups: Sequence[Group]) -> dict[str, dict[str, str]]:
    """The evaluation protocol of every run, by group name and seed: see `turnwise.statistics.evaluation_protocol`."""
    protocols = {}
    for group in groups:
        for seed, run in group.runs.items():
            tasks = read_task_set(default_store().folder(run.artifacts.task_set("test")), "test")
            name = run_name(group.name, seed)
            protocols[name] = circumstances(
                run.artifacts.experiment, run.tags.get("world_version"), task_set_digest(tasks)
            )
    return protocols


def judged(groups: Sequence[Group], stated: float | None) -> Judgement:
    """Verdicts by the primary metric of the first group's world, over sampled episodes.

    `stated` is the success whose first time is reported; None: over greedy episodes, without learning curves. Each
    ablation whose seeds were added until its comparisons were decided has a note.

    Raises ConfigurationError if a run lacks a value.
    """
    world = groups[0].world
    column = greedy_column(world) if stated is None else world.primary_column
    variants, frames = _results(groups, world, column)
    if stated is None:
        judgement = judge(column.heading, variants, frames=frames, share=column.percent)
    else:
        curves = {group.name: _whole_curves(group, world) for group in groups}
        judgement = judge(column.heading, variants, frames=frames, curves=curves, stated=stated, share=column.percent)
    runs = [run for group in groups for run in group.runs.values()]
    ablations = _ablations(runs)
    races = {ablations[run.tags.get(PARENT, "")]: run.race for run in runs if run.race is not None}
    notes = [
        f"The seeds of {name} were added until comparisons were decided. Here each is tested once, as if their number "
        "had been fixed, which finds more than there is; at all looks together: "
        f"{sentences or 'they are still added.'}"
        for name, sentences in races.items()
    ]
    return replace(judgement, notes=[*judgement.notes, *notes])


def _results(
    groups: Sequence[Group], world: World, column: Column
) -> tuple[dict[str, Results], dict[str, ReferencePoints]]:
    """By group, the results of its runs on the test task set, and its reference points."""
    variants, frames = {}, {}
    for group in groups:
        variants[group.name] = Results(
            {seed: _test_metrics(run, world, column) for seed, run in sorted(group.runs.items())}
        )
        frames[group.name] = _frame(next(iter(group.runs.values())), world, column)
    return variants, frames


def at_equal_cost(groups: Sequence[Group], spending: Spending) -> list[AtEqualBudget]:
    """Compare the groups on each axis at the largest budgets that every run has spent: see `turnwise.results.costs`."""
    courses = [
        course_of(
            group.name,
            seed,
            run.artifacts.start,
            run.artifacts.iterations,
            run.artifacts.prepared.values(),
            spending,
            ended=run.ended is not None,
        )
        for group in groups
        for seed, run in sorted(group.runs.items())
    ]
    return at_equal_budgets(courses, groups[0].world)


def _test_metrics(run: RecordedRun, world: World, column: Column) -> dict[str, float]:
    assert run.artifacts.test is not None, "grouped() refuses runs without a test"
    means = task_means(run.artifacts.test, world, column)
    if not means:
        raise ConfigurationError(
            f"a run must have a value of the measure {column.heading!r} to be compared; {run.name} ({run.id[:8]}) has "
            "none on the test task set: leave it out",
            "TW-missing-measure",
        )
    return means


def references(groups: Sequence[Group]) -> dict[str, Interval]:
    """The primary metric of warm starts and baselines on the test task sets, each once; by ablation if several."""
    world = groups[0].world
    primary = world.primary_column
    runs = [next(iter(group.runs.values())) for group in groups]
    ablations = _ablations(runs)
    labels = {
        (name, evaluation): f"{name} ({ablations[run.tags.get(PARENT, '')]})" if len(ablations) > 1 else name
        for run in reversed(runs)
        for name, evaluation in run.baselines.items()
    }
    intervals = {}
    for (_, evaluation), label in sorted(labels.items(), key=lambda item: (item[0][0] != WARM_START, item[1])):
        values = list(task_means(evaluation, world, primary).values())
        if values:
            intervals[label] = over_tasks(values, seed=0, proportion=primary.percent)
    return intervals


def _frame(run: RecordedRun, world: World, column: Column) -> ReferencePoints:
    """The reference points that the run's ablation recorded: its warm start and its baselines."""
    means = {name: cell(evaluation, world, column) for name, evaluation in run.baselines.items()}
    start = task_means(run.baselines[WARM_START], world, column) if WARM_START in run.baselines else {}
    return ReferencePoints(Results({0: start}) if start else None, means.get("random"), means.get("oracle"))


def _whole_curves(group: Group, world: World) -> list[Points]:
    """One curve per run over the iterations that were planned, sorted by seed: see `turnwise.statistics.curves`."""
    return [
        whole_curve(run.start, [outputs.get("evaluation") for outputs in run.iterations], world, run.ended)
        for run in (run.artifacts for _, run in sorted(group.runs.items()))
    ]
