"""What all runs of an ablation come to, from their artifacts: the report data, `ReportData`.

They contain no time and no commit: the same results give the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from pydantic import Field

from turnwise.config.schema import RewardSection, Section, SeedsUntil, WorldSection
from turnwise.data.outcomes import EarlyEnd, LeftOut, NamedRun
from turnwise.data.trajectory import Ending, Trajectory
from turnwise.data.trajectory_files import GREEDY, SAMPLED, read_credit, read_trajectories
from turnwise.policy.token_texts import Spelling
from turnwise.results import history
from turnwise.results.cells import (
    WARM_START,
    cell,
    column_of,
    curve,
    greedy_column,
    table_columns,
    task_means,
    whole_curve,
)
from turnwise.results.history import Opener, RunHistory
from turnwise.results.outcomes import Outcomes, collected, ended_run
from turnwise.results.report_data import SHARE, Curve, Measure, ReportColumn, ReportData, Row, RowKind, Sample
from turnwise.statistics import Interval, Judgement, ReferencePoints, Results, judge, over_tasks, student_over_seeds
from turnwise.statistics.curves import Points
from turnwise.statistics.until_decided import Looks, with_looks, worth_having
from turnwise.store import Reference, default_store
from turnwise.world import Column, World, make_world

if TYPE_CHECKING:
    from turnwise.health.alarms import AlarmRecord

VALIDATION = "Learning, on the validation task set"
NOTES = (
    "Variants: episodes are sampled at the training temperature unless the column says greedy; the interval is "
    "over seeds, which vary the tasks drawn and the sampling. All seeds start from the same warm start.",
    "Baseline policies and the warm start: the interval is over the test tasks.",
)


class ReportedRun(NamedRun, Section):
    """A run of the report, whose artifacts are listed at the same index."""

    variant: str
    seed: int
    ended: EarlyEnd | None = None
    """How a guard or an alarm ended it; None where it made all its iterations."""


class ReportParameters(Section):
    """The parameters of the report."""

    title: str
    world: WorldSection
    rewards: dict[str, dict[str, RewardSection]]
    """By variant, the rewards that count in it."""
    runs: list[ReportedRun]
    left_out: list[LeftOut] = Field(default_factory=list)
    """The runs that a fault has left out."""
    seed: int
    """Seed of the bootstrap."""
    success_threshold: float
    """The success threshold, as in the section `ablation`."""
    plotted: list[Measure]
    """The metrics of an iteration's artifacts that are plotted over iterations."""
    attempts: int
    """How often a task may be attempted; above 1, the table gets a column for success at the first attempt."""
    until: SeedsUntil | None = None
    """By what rule seeds were added; None where they were listed."""


@dataclass(frozen=True)
class Compared:
    """The artifacts that a report compares. Lists have one entry per run, in the order of the parameters."""

    parameters: ReportParameters
    baselines: Mapping[str, Reference]
    """The evaluations of the baseline policies on the test task set, by name."""
    warm_start: Reference
    """The evaluation of the warm start on the test task set."""
    starts: Sequence[Reference]
    """Evaluations of the warm start on the validation task set."""
    iterations: Sequence[Sequence[Mapping[str, Reference]]]
    """By run and iteration its artifacts, by name."""
    tests: Sequence[Reference]

    @cached_property
    def world(self) -> World:
        """The world in which the policies were compared."""
        return make_world(self.parameters.world.name, self.parameters.world.parameters)

    @cached_property
    def columns(self) -> list[Column]:
        """The columns of the table."""
        return table_columns(self.world, self.parameters.attempts)

    @cached_property
    def evaluations(self) -> list[list[Reference | None]]:
        """By run and iteration the evaluation on the validation task set, where there was one."""
        return [[iteration.get("evaluation") for iteration in run_iterations] for run_iterations in self.iterations]

    @cached_property
    def histories(self) -> list[RunHistory]:
        """The courses of the runs."""
        return [
            RunHistory(
                run.variant, run.seed, iterations, [start, *(each for each in evaluations if each is not None), test]
            )
            for run, start, iterations, evaluations, test in zip(
                self.parameters.runs, self.starts, self.iterations, self.evaluations, self.tests, strict=True
            )
        ]

    def report(self, alarms: Sequence[Sequence[AlarmRecord]], spelling: Spelling, opened: Opener) -> ReportData:
        """The report data.

        Args:
            alarms: per run and iteration, what the rules over the monitors gave.
            spelling: of the policies' tokens.
            opened: gives the folder of a rollout, which may have been pruned.
        """
        primary = self.world.primary_column
        looks = self._looks(primary)
        attribution = self.world.attribution()
        return ReportData(
            title=self.parameters.title,
            description=self.world.instruction,
            columns=[_report_column(column) for column in self.columns],
            rows=list(self._rows()),
            curves=[*self._learning_curves(), *history.curves(self.histories, self.parameters.plotted)],
            samples=list(self._samples(spelling, opened)),
            endings=history.endings(self.histories),
            alarms=history.alarms(self.histories, alarms),
            work=history.work(self.histories, opened),
            outcomes=self._outcomes(opened),
            notes=[*NOTES, *([attribution] if attribution else []), *lost_note(self._lost_shares())],
            judgement=self._judgement(primary, self._variant_curves()),
            greedy=self._judgement(greedy_column(self.world), {}),
            race=None if looks is None else looks.race,
        )

    def _rows(self) -> Iterator[Row]:
        """The rows of the table: the variants, each with those of its runs that went on, and the other policies."""
        counted, left_out = ([run.variant for run in runs] for runs in (self.parameters.runs, self.parameters.left_out))
        for variant in dict.fromkeys([*counted, *left_out]):
            own = [pair for pair in zip(self.parameters.runs, self.tests, strict=True) if pair[0].variant == variant]
            yield self._variant_row(variant, "variant", [test for _, test in own])
            went_on = [test for run, test in own if run.ended is None]
            if 0 < len(went_on) < len(own):
                yield self._variant_row(f"{variant}, runs that went on", "went on", went_on)
        yield self._policy_row(WARM_START, "warm start", self.warm_start)
        for name, evaluation in self.baselines.items():
            yield self._policy_row(name, "baseline", evaluation)

    def _variant_row(self, name: str, kind: RowKind, tests: Sequence[Reference]) -> Row:
        return Row(name, kind, {column.heading: self._over_seeds(tests, column) for column in self.columns})

    def _policy_row(self, name: str, kind: RowKind, evaluation: Reference) -> Row:
        return Row(name, kind, {column.heading: self._over_tasks(evaluation, column) for column in self.columns})

    def _over_seeds(self, tests: Sequence[Reference], column: Column) -> Interval | None:
        means = [value for test in tests if (value := cell(test, self.world, column)) is not None]
        if not means:
            return None
        return student_over_seeds(means, within=(0.0, 1.0)) if column.percent else student_over_seeds(means)

    def _over_tasks(self, evaluation: Reference, column: Column) -> Interval | None:
        values = list(task_means(evaluation, self.world, column).values())
        return over_tasks(values, seed=self.parameters.seed, proportion=column.percent) if values else None

    def _learning_curves(self) -> Iterator[Curve]:
        """The learning curves of each run: the primary metric on the validation task set, sampled and greedy."""
        primary = self.world.primary_column
        unit = SHARE if primary.percent else ""
        for run, start, evaluations in zip(self.parameters.runs, self.starts, self.evaluations, strict=True):
            for mode in (SAMPLED, GREEDY):
                if points := curve(start, evaluations, self.world, column_of(self.world, mode)):
                    heading = f"{primary.heading}, {mode}"
                    yield Curve(f"validation/{mode}", heading, run.variant, run.seed, points, unit, VALIDATION)

    def _variant_curves(self) -> dict[str, list[Points]]:
        """The learning curves of each variant's runs: the primary metric on the validation task set, sampled.

        A run that was ended keeps its last value to the end of the training that was planned.
        """
        curves: dict[str, list[Points]] = {}
        for run, start, evaluations in zip(self.parameters.runs, self.starts, self.evaluations, strict=True):
            curves.setdefault(run.variant, []).append(whole_curve(start, evaluations, self.world, run.ended))
        return curves

    def _judgement(self, column: Column, curves: Mapping[str, Sequence[Points]]) -> Judgement | None:
        """The verdicts on a column, over all tasks of the test task set; None where a run has no value of it there."""
        variants = self._tested(column)
        start = task_means(self.warm_start, self.world, column)
        if not start or not all(tasks for runs in variants.values() for tasks in runs.values()):
            return None
        means = {name: cell(evaluation, self.world, column) for name, evaluation in self.baselines.items()}
        frame = ReferencePoints(Results({0: start}), means.get("random"), means.get("oracle"))
        judgement = judge(
            column.heading,
            {variant: Results(runs) for variant, runs in variants.items()},
            frames=dict.fromkeys(variants, frame),
            curves=curves,
            stated=self.parameters.success_threshold,
            share=column.percent,
        )
        looks = self._looks(column)
        return judgement if looks is None else with_looks(judgement, looks)

    def _looks(self, column: Column) -> Looks | None:
        """The looks at a column by which seeds were added, or while they were; None where they were listed."""
        until = self.parameters.until
        if until is None:
            return None
        runs = self._tested(column)
        for each in self.parameters.left_out:
            runs.setdefault(each.variant, {})[each.seed] = {}
        start = task_means(self.warm_start, self.world, column)
        worth = worth_having(until, column.percent)
        return Looks(runs, dict.fromkeys(runs, Results({0: start})) if start else {}, until, worth=worth)

    def _tested(self, column: Column) -> dict[str, dict[int, dict[str, float]]]:
        """By variant and seed, the test tasks' means in a column."""
        variants: dict[str, dict[int, dict[str, float]]] = {}
        for run, test in zip(self.parameters.runs, self.tests, strict=True):
            variants.setdefault(run.variant, {})[run.seed] = task_means(test, self.world, column)
        return variants

    def _outcomes(self, opened: Opener) -> Outcomes | None:
        """The runs that were ended early or left out; None where every run made all its iterations."""
        ended = [
            ended_run(run.variant, run.seed, run.ended, history.work_of(course.name, [course], opened))
            for run, course in zip(self.parameters.runs, self.histories, strict=True)
            if run.ended is not None
        ]
        return collected([run.variant for run in self.parameters.runs], ended, self.parameters.left_out)

    def _samples(self, spelling: Spelling, opened: Opener) -> Iterator[Sample]:
        """Best and worst trajectory of one group, from the first and the last batch of each variant's first run."""
        first_runs: dict[str, RunHistory] = {}
        for run in self.histories:
            first_runs.setdefault(run.variant, run)
        for run in first_runs.values():
            for place in sorted({0, len(run.iterations) - 1}):
                trajectories = read_trajectories(opened(run.iterations[place]["rollout"]))
                credit_by_index = read_credit(run.iterations[place]["credit"])
                advantages = {index: credit.turns for index, credit in credit_by_index.items()}
                for name, index in _contrast(trajectories, advantages).items():
                    label = f"{run.variant}, seed {run.seed}, batch {place + 1}: {name} of its group"
                    token_texts = [spelling(turn.reply_tokens) for turn in trajectories[index].turns]
                    sample = Sample(label, trajectories[index], None, {}, spelling=token_texts)
                    yield sample.with_credit(credit_by_index[index], self.parameters.rewards[run.variant])

    def _lost_shares(self) -> dict[str, float]:
        """By policy, the share (0 to 1) of its test episodes that was lost: sampled or greedy, whichever lost more."""
        names = [run.name for run in self.parameters.runs]
        evaluations = {**self.baselines, WARM_START: self.warm_start, **dict(zip(names, self.tests, strict=True))}
        return {
            name: max(
                (
                    share
                    for metric, share in default_store().metrics(evaluation).items()
                    if metric.endswith(f"/ending/{Ending.WORLD_LOST}")
                ),
                default=0.0,
            )
            for name, evaluation in evaluations.items()
        }


def _report_column(column: Column) -> ReportColumn:
    """A column of a world as the report shows it."""
    better = {"higher": "up", "lower": "down", None: None}[column.better]
    unit, digits = (SHARE, 2) if column.percent else ("", 1)
    return ReportColumn(column.heading, column.heading, unit, better, digits, column.description)  # type: ignore[arg-type]


def _contrast(trajectories: Sequence[Trajectory], advantages: Mapping[int, list[float]]) -> dict[str, int]:
    """The trajectories with the highest and lowest first advantage of the first group whose first advantages differ."""
    groups: dict[int, list[int]] = {}
    for index in advantages:
        groups.setdefault(trajectories[index].group, []).append(index)
    for members in groups.values():
        ordered = sorted(members, key=lambda index: advantages[index][0])
        if advantages[ordered[0]][0] < advantages[ordered[-1]][0]:
            return {"best": ordered[-1], "worst": ordered[0]}
    return {}


def lost_note(shares: Mapping[str, float]) -> list[str]:
    """What is to be said of lost test episodes, by the share that each policy lost; nothing where none was lost."""
    shares_lost = [f"{name} {share:.0%}" for name, share in shares.items() if share > 0]
    if not shares_lost:
        return []
    return [
        "Missing data: a world or a reward failed in some test episodes, which count nowhere, not even as failures: "
        f"{', '.join(shares_lost)}."
    ]
