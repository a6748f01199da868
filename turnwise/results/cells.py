"""The numbers of the report's table: its columns, and an evaluation's value in each.

The report, `turnwise compare` and `turnwise lineage` all use this module, so that each number is computed in one way.
The unit is the task: a cell is the mean over tasks of the mean over a task's episodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

from turnwise.data import metrics
from turnwise.data.outcomes import EarlyEnd
from turnwise.data.trajectory_files import GREEDY, SAMPLED, read_evaluation
from turnwise.statistics.curves import Points, carried_forward
from turnwise.statistics.interval import mean
from turnwise.store import Reference
from turnwise.world import Column, World

WARM_START = "warm start"
"""Name of the table row of the policy that training starts from, next to the variants and the baseline policies."""
ATTEMPTS = (
    Column("first attempt", "first_success", description="Tasks that were solved at the first attempt."),
    Column("attempts", "attempts", percent=False, better=None, description="Attempts per task, the first included."),
)


def table_columns(world: World, attempts: int) -> list[Column]:
    """The columns of the table: the world's own, those of attempts if `attempts` > 1, and greedy success."""
    return [*world.columns, *(ATTEMPTS if attempts > 1 else ()), greedy_column(world)]


def greedy_column(world: World) -> Column:
    """The primary metric over greedy episodes; all other columns are over sampled episodes."""
    primary = world.primary_column
    return replace(primary, heading=f"greedy {primary.heading}", description="")


def column_of(world: World, mode: str) -> Column:
    """The column with the primary metric of the `greedy` or the `sampled` episodes."""
    return {SAMPLED: world.primary_column, GREEDY: greedy_column(world)}[mode]


def task_means(evaluation: Reference, world: World, column: Column) -> dict[str, float]:
    """The mean of each task of an evaluation, by task id and in order; tasks without a value are left out."""
    if column == greedy_column(world):
        return dict(_task_means(evaluation, GREEDY, (column,))[column])
    columns = tuple(world.columns)
    return dict(_task_means(evaluation, SAMPLED, columns if column in columns else (column,))[column])


@lru_cache(maxsize=1024)
def _task_means(evaluation: Reference, mode: str, columns: tuple[Column, ...]) -> dict[Column, dict[str, float]]:
    """The means of several columns. Reading the trajectories takes most of the time, and what a reference names never
    changes: so they are read once for all columns.
    """
    trajectories = read_evaluation(evaluation, mode)
    return {column: metrics.task_means(trajectories, column) for column in columns}


def cell(evaluation: Reference, world: World, column: Column) -> float | None:
    """The mean over the tasks of an evaluation; None where no task has a value."""
    values = task_means(evaluation, world, column).values()
    return mean(values) if values else None


def curve(
    start: Reference, evaluations: Sequence[Reference | None], world: World, column: Column
) -> list[tuple[int, float]]:
    """(iteration, cell) of every evaluation that has a value. `start` is iteration 0, before training."""
    values = [
        (iteration, cell(evaluation, world, column))
        for iteration, evaluation in enumerate([start, *evaluations])
        if evaluation is not None
    ]
    return [(iteration, value) for iteration, value in values if value is not None]


def whole_curve(
    start: Reference, evaluations: Sequence[Reference | None], world: World, ended: EarlyEnd | None
) -> Points:
    """The curve of a run by the primary metric, over the iterations that were planned: `turnwise.statistics.curves`."""
    points: Points = curve(start, evaluations, world, world.primary_column)
    return points if ended is None else carried_forward(points, ended.planned)
