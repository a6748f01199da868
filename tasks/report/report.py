"""Report: collects an ablation's results into the report data, `report.json`, from which everything is drawn.

The report data contain no time and no commit: the same results give the same bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pydantic import Field

from tasks.caching import depends_on
from tasks.orchestration.deferred import task
from tasks.playing import world_code
from tasks.report import history
from tasks.restoring import opened
from turnwise.config.schema import RewardSection, Section, SeedsUntil, WorldSection
from turnwise.data.evaluations import GREEDY, SAMPLED
from turnwise.data.outcomes import EarlyEnd, LeftOut
from turnwise.data.trajectory import Ending, Trajectory
from turnwise.data.trajectory_files import read_credit, read_trajectories
from turnwise.policy.token_texts import Spelling
from turnwise.results import report_data
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
from turnwise.results.outcomes import Outcomes, collected, ended_run
from turnwise.statistics import Interval, Judgement, ReferencePoints, Results, judge, over_tasks, student_over_seeds
from turnwise.statistics.curves import Points
from turnwise.statistics.until_decided import Looks, with_looks, worth_having
from turnwise.store import Reference, default_store
from turnwise.training_runs.iteration_stages import Measure
from turnwise.training_runs.results import DATA_FILE
from turnwise.world import Column, Reward, World, make_world

VALIDATION = "Learning, on the validation task set"


class ReportedRun(Section):
    """A run of the report, whose inputs list its references at the same index."""

    variant: str
    seed: int
    ended: EarlyEnd | None = None
    """How a guard or an alarm ended it; None where it made all its iterations."""


class ReportParameters(Section):
    """The parameters of the report."""

    title: str
    world: WorldSection
    rewards: dict[str, RewardSection]
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


@task(name="report", task_run_name="{label}: report", retries=1)
@depends_on(
    kernel=(
        "turnwise.credit.batch",
        "turnwise.policy.token_texts",
        "turnwise.results.cells",
        "turnwise.results.report_data",
    ),
    writes="report 2",
    code=world_code,
)
def report(
    parameters: ReportParameters,
    *,
    baselines: dict[str, Reference],
    warm_start: Reference,
    starts: list[Reference],
    iterations: list[list[dict[str, Reference]]],
    tests: list[Reference],
    tokenizer: Reference,
    label: str = "comparison",
) -> Reference:
    """The report data of an ablation, `report.json`.

    Lists have one entry per run; `iterations` has per run and iteration its artifacts by name.
    """
    world = make_world(parameters.world.name, parameters.world.parameters)
    evaluations = [[made.get("evaluation") for made in of_run] for of_run in iterations]
    runs = [
        history.RunHistory(
            run.variant,
            run.seed,
            iterations[index],
            [each for each in [starts[index], *evaluations[index], tests[index]] if each is not None],
        )
        for index, run in enumerate(parameters.runs)
    ]

    def judged(column: Column, curves: Mapping[str, Sequence[Points]]) -> Judgement | None:
        return _judgement(parameters, column, world, baselines, warm_start, tests, curves)

    looks = _looks(parameters, world.primary_column, world, warm_start, tests)
    data = report_data.ReportData(
        title=parameters.title,
        description=world.instruction,
        columns=[_column(column) for column in table_columns(world, parameters.attempts)],
        rows=_rows(parameters, world, baselines, warm_start, tests),
        curves=[
            *(
                curve
                for index, run in enumerate(parameters.runs)
                for curve in _curves(world, run, starts[index], evaluations[index])
            ),
            *history.curves(runs, parameters.plotted),
        ],
        samples=_samples(parameters, runs, Spelling(default_store().folder(tokenizer))),
        endings=history.endings(runs),
        alarms=history.alarms(runs),
        work=history.work(runs),
        outcomes=_outcomes(parameters, runs),
        notes=[*_notes(world), *lost_note(_lost_shares(parameters, baselines, warm_start, tests))],
        judgement=judged(world.primary_column, _variant_curves(parameters, world, starts, evaluations)),
        greedy=judged(greedy_column(world), {}),
        race=None if looks is None else looks.race,
    )
    with default_store().write("report") as draft:
        (draft.folder / DATA_FILE).write_text(data.to_json(), encoding="utf-8")
        primary = world.primary_column.heading
        for row in data.rows:
            if (cell := row.cells[primary]) is not None:
                draft.metrics[f"{row.name}/{primary}"] = cell.value
    return draft.reference


def _column(column: Column) -> report_data.ReportColumn:
    better = {"higher": "up", "lower": "down", None: None}[column.better]
    unit, digits = (report_data.SHARE, 2) if column.percent else ("", 1)
    return report_data.ReportColumn(column.heading, column.heading, unit, better, digits, column.description)  # type: ignore[arg-type]


def _rows(
    parameters: ReportParameters,
    world: World,
    baselines: Mapping[str, Reference],
    warm_start: Reference,
    tests: Sequence[Reference],
) -> list[report_data.Row]:
    columns = table_columns(world, parameters.attempts)
    tested = list(zip(parameters.runs, tests, strict=True))

    def row(name: str, kind: report_data.RowKind, of_seeds: Sequence[Reference]) -> report_data.Row:
        return report_data.Row(name, kind, {c.heading: _over_seeds(of_seeds, world, c) for c in columns})

    rows = []
    counted, left_out = ([each.variant for each in runs] for runs in (parameters.runs, parameters.left_out))
    for variant in dict.fromkeys([*counted, *left_out]):
        own = [(run, test) for run, test in tested if run.variant == variant]
        rows.append(row(variant, "variant", [test for _, test in own]))
        went_on = [test for run, test in own if run.ended is None]
        if 0 < len(went_on) < len(own):
            rows.append(row(f"{variant}, runs that went on", "went on", went_on))
    others = {WARM_START: warm_start, **baselines}
    for name, evaluation in others.items():
        kind: report_data.RowKind = "warm start" if name == WARM_START else "baseline"
        cells = {c.heading: _over_tasks(evaluation, world, c, parameters.seed) for c in columns}
        rows.append(report_data.Row(name, kind, cells))
    return rows


def _over_tasks(evaluation: Reference, world: World, column: Column, seed: int) -> Interval | None:
    values = list(task_means(evaluation, world, column).values())
    return over_tasks(values, seed=seed, proportion=column.percent) if values else None


def _over_seeds(evaluations: Sequence[Reference], world: World, column: Column) -> Interval | None:
    found = [cell(evaluation, world, column) for evaluation in evaluations]
    means = [value for value in found if value is not None]
    if not means:
        return None
    return student_over_seeds(means, within=(0.0, 1.0)) if column.percent else student_over_seeds(means)


def _curves(
    world: World,
    run: ReportedRun,
    start: Reference,
    evaluations: Sequence[Reference | None],
) -> list[report_data.Curve]:
    """The learning curves of one run: the primary metric on the validation task set, sampled and greedy."""
    primary = world.primary_column
    unit = report_data.SHARE if primary.percent else ""
    curves = []
    for mode in (SAMPLED, GREEDY):
        if points := curve(start, evaluations, world, column_of(world, mode)):
            heading = f"{primary.heading}, {mode}"
            curves.append(
                report_data.Curve(f"validation/{mode}", heading, run.variant, run.seed, points, unit, VALIDATION)
            )
    return curves


def _variant_curves(
    parameters: ReportParameters,
    world: World,
    starts: Sequence[Reference],
    evaluations: Sequence[Sequence[Reference | None]],
) -> dict[str, list[Points]]:
    """The learning curves of each variant's runs: the primary metric on the validation task set, sampled.

    A run that was ended keeps its last value to the end of the training that was planned.
    """
    curves: dict[str, list[Points]] = {}
    for index, run in enumerate(parameters.runs):
        points: Points = curve(starts[index], evaluations[index], world, world.primary_column)
        curves.setdefault(run.variant, []).append(whole_curve(points, run.ended))
    return curves


def _outcomes(parameters: ReportParameters, runs: Sequence[history.RunHistory]) -> Outcomes | None:
    """The runs that were ended early or left out; None where every run made all its iterations."""
    ended = [
        ended_run(name.variant, name.seed, name.ended, history.work_of(run.name, [run]))
        for name, run in zip(parameters.runs, runs, strict=True)
        if name.ended is not None
    ]
    return collected([run.variant for run in runs], ended, parameters.left_out)


def _judgement(
    parameters: ReportParameters,
    column: Column,
    world: World,
    baselines: Mapping[str, Reference],
    warm_start: Reference,
    tests: Sequence[Reference],
    curves: Mapping[str, Sequence[Points]],
) -> Judgement | None:
    """The verdicts on a column, over all tasks of the test task set; None where a run has no value of it there."""
    variants: dict[str, dict[int, dict[str, float]]] = {}
    for run, test in zip(parameters.runs, tests, strict=True):
        variants.setdefault(run.variant, {})[run.seed] = task_means(test, world, column)
    start = task_means(warm_start, world, column)
    if not start or not all(tasks for runs in variants.values() for tasks in runs.values()):
        return None
    means = {name: cell(evaluation, world, column) for name, evaluation in baselines.items()}
    frame = ReferencePoints(Results({0: start}), means.get("random"), means.get("oracle"))
    judgement = judge(
        column.heading,
        {variant: Results(runs) for variant, runs in variants.items()},
        frames=dict.fromkeys(variants, frame),
        curves=curves,
        stated=parameters.success_threshold,
        share=column.percent,
    )
    looks = _looks(parameters, column, world, warm_start, tests)
    return judgement if looks is None else with_looks(judgement, looks)


def _looks(
    parameters: ReportParameters, column: Column, world: World, warm_start: Reference, tests: Sequence[Reference]
) -> Looks | None:
    """The looks at a column by which seeds were added, or while they were; None where they were listed."""
    if parameters.until is None:
        return None
    runs: dict[str, dict[int, dict[str, float]]] = {}
    for run, test in zip(parameters.runs, tests, strict=True):
        runs.setdefault(run.variant, {})[run.seed] = task_means(test, world, column)
    for each in parameters.left_out:
        runs.setdefault(each.variant, {})[each.seed] = {}
    start = task_means(warm_start, world, column)
    worth = worth_having(parameters.until, column.percent)
    return Looks(runs, Results({0: start}) if start else None, parameters.until, worth=worth)


def _samples(
    parameters: ReportParameters,
    runs: Sequence[history.RunHistory],
    spelling: Spelling,
) -> list[report_data.Sample]:
    """Best and worst trajectory of one group, from the first and the last batch of each variant's first run."""
    rewards = {name: Reward("", section.level, section.weight) for name, section in parameters.rewards.items()}
    samples = []
    shown: set[str] = set()
    for run in runs:
        if run.variant in shown:
            continue
        shown.add(run.variant)
        for place in sorted({0, len(run.iterations) - 1}):
            made = run.iterations[place]
            trajectories = read_trajectories(opened(made["rollout"]))
            credited = read_credit(made["credit"])
            advantages = {number: found.turns for number, found in credited.items()}
            for name, chosen in _contrast(trajectories, advantages).items():
                label = f"{run.variant}, seed {run.seed}, batch {place + 1}: {name} of its group"
                trajectory = trajectories[chosen]
                spelt = [spelling(turn.reply_tokens) for turn in trajectory.turns]
                tokens = credited[chosen].by_turn([len(turn.reply_tokens) for turn in trajectory.turns])
                samples.append(report_data.Sample(label, trajectory, advantages[chosen], rewards, tokens, spelt))
    return samples


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


def _lost_shares(
    parameters: ReportParameters, baselines: Mapping[str, Reference], warm_start: Reference, tests: Sequence[Reference]
) -> dict[str, float]:
    """By policy, the share (0 to 1) of its test episodes that was lost: sampled or greedy, whichever lost more."""
    names = [f"{run.variant} seed {run.seed}" for run in parameters.runs]
    played = {**baselines, "warm start": warm_start, **dict(zip(names, tests, strict=True))}
    return {
        name: max(
            (
                share
                for metric, share in default_store().metrics(evaluation).items()
                if metric.endswith(f"/ending/{Ending.WORLD_LOST}")
            ),
            default=0.0,
        )
        for name, evaluation in played.items()
    }


def lost_note(shares: Mapping[str, float]) -> list[str]:
    """What is to be said of lost test episodes, by the share that each policy lost; nothing where none was lost."""
    lost = [f"{name} {share:.0%}" for name, share in shares.items() if share > 0]
    if not lost:
        return []
    return [
        "Missing data: a world or a reward failed in some test episodes, which count nowhere, not even as failures: "
        f"{', '.join(lost)}."
    ]


def _notes(world: World) -> list[str]:
    notes = [
        "Variants: episodes are sampled at the training temperature unless the column says greedy; the interval is "
        "over seeds, which vary the tasks drawn and the sampling. All seeds start from the same warm start.",
        "Baseline policies and the warm start: the interval is over the test tasks.",
    ]
    attribution = world.attribution()
    return [*notes, attribution] if attribution else notes
