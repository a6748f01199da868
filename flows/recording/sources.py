"""Resolves the name of a number to its value and to the artifacts that it is computed from.

    update/entropy_nats               a metric in MLflow, of an iteration (by default the last)
    validation/greedy                 a point of a learning curve in the report, likewise
    mt-grpo/greedy success            a table cell of the report: a variant, a baseline or the warm start, and a column
    mt-grpo/interquartile mean        a column of the report's verdicts, of a variant
    mt-grpo - warm start              a gain, or the difference of two variants, by the primary metric
    mt-grpo - grpo-or/corrected p     what else the verdicts tell of a difference: see COMPARED

Values are computed as in the report: see `tasks.report.cells` and `turnwise.statistics.verdict`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache

from flows.recording.answer import NumberAnswer, Source
from flows.recording.comparison import Group, grouped, judged
from flows.recording.recorded_metrics import metrics_in
from flows.roster import recorded_groups
from tasks.report.cells import WARM_START, cell, column_of, table_columns
from tasks.rollout.evaluate import GREEDY, SAMPLED
from turnwise.errors import ConfigurationError
from turnwise.statistics.interval import SINGULAR, mean
from turnwise.statistics.verdict import Comparison
from turnwise.store import Reference, default_store
from turnwise.tracking.finding import RecordedRun
from turnwise.tracking.values import metric_name
from turnwise.world import Column, World, make_world

DIFFERENCE = re.compile(r"(?P<first>.+?) [-−] (?P<second>[^/]+)(/(?P<column>.+))?")
"""A difference of two rows, with a minus sign as in the report or with a hyphen as typed, and a column of COMPARED."""
COMPARED: Mapping[str, Callable[[Comparison, bool], float | None]] = {
    "p": lambda found, turned: found.p,
    "corrected p": lambda found, turned: found.corrected,
    "exact p": lambda found, turned: found.exact,
    "effect": lambda found, turned: -found.effect if turned and found.effect is not None else found.effect,
    "improvement": lambda found, turned: (
        1.0 - found.improvement if turned and found.improvement is not None else found.improvement
    ),
}
"""What the report's verdicts tell of a comparison, as it stands or with its two rows turned round."""
GAIN = "gain over the warm start"
STANDING = ("mean", "interquartile mean", "normalised", "mean over the curve", GAIN)
"""The columns of the report's verdicts on one variant."""
FRAME = ("random", "oracle")
"""The baseline policies whose means are 0 and 1 on the report's normalised scale."""


def answer(what: str, runs: Sequence[RecordedRun], iteration: int | None = None) -> NumberAnswer:
    """Resolve a number's name in these runs; the names are listed at the top of this file.

    Raises ConfigurationError if no run has it.
    """
    if sources := sources_of(what, runs, iteration):
        values = [source.value for source in sources if source.value is not None]
        manner = f"mean of {len(values)} {'runs' if sources[0].run else 'evaluations'}" if len(values) > 1 else ""
        return NumberAnswer(mean(values) if values else None, manner, sources)
    found = _of_difference(what, runs) or _of_verdict(what, runs)
    if found is None:
        variants, players = [run.artifacts.variant for run in runs], [name for run in runs for name in run.players]
        rows = dict.fromkeys([*variants, *players])
        columns = dict.fromkeys(column.heading for run in runs for column in _columns(run))
        groups = ("test", *recorded_groups())
        raise ConfigurationError(
            "lineage starts from an artifact of the store, a metric of a run, or a number of the report; "
            f"{what!r} is none of them: say kind/digest; or {'/..., '.join(groups)}/... as in MLflow; or "
            f"ROW/COLUMN with one of the rows {', '.join(rows)} and of the columns {', '.join(columns)}, "
            f"{', '.join(STANDING)}; or 'ROW - ROW', or 'ROW - ROW/COLUMN' with one of {', '.join(COMPARED)}"
        )
    return found


def sources_of(what: str, runs: Sequence[RecordedRun], iteration: int | None = None) -> list[Source]:
    """The sources of a metric, a point of a curve or a table cell: one per run that has it, to be averaged.

    Empty if no run has it.
    """
    for read in (_of_metric, _of_curve):
        if found := [source for run in runs if (source := read(what, run, iteration)) is not None]:
            return found
    return [source for run in runs if (source := _of_variant(what, run)) is not None] or _of_row(what, runs)


def _of_metric(what: str, run: RecordedRun, iteration: int | None) -> Source | None:
    """A metric by its name in MLflow."""
    group = what.partition("/")[0]
    reference = _artifact_of(group, run, iteration)
    if reference is None:
        return None
    metrics = {metric_name(name): value for name, value in metrics_in(group, reference).items()}
    name = metric_name(what)
    return Source(metrics[name], reference, run) if name in metrics else None


def _of_curve(what: str, run: RecordedRun, iteration: int | None) -> Source | None:
    """A point of a curve of the report, by the curve's name: `validation` and a mode, or an artifact and its metric."""
    kind, _, name = what.partition("/")
    if kind == "validation" and name in (SAMPLED, GREEDY):
        evaluation = _artifact_of(kind, run, iteration)
        if evaluation is None:
            return None
        world = _world(run)
        return Source(cell(evaluation, world, column_of(world, name)), evaluation, run)
    made = _latest(kind, run, iteration)
    metrics = {} if made is None else default_store().metrics(made)
    return Source(metrics[name], made, run) if made is not None and name in metrics else None


def _artifact_of(group: str, run: RecordedRun, iteration: int | None) -> Reference | None:
    artifacts = run.artifacts
    of_no_iteration = {"test": artifacts.test, "test_at_horizon": artifacts.test_at_horizon}
    if group in of_no_iteration:
        return of_no_iteration[group]
    if iteration == 0:
        return {"validation": artifacts.start, "validation_at_horizon": artifacts.start_at_horizon}.get(group)
    stage = recorded_groups().get(group)
    return None if stage is None else _latest(stage.name, run, iteration)


def _latest(name: str, run: RecordedRun, iteration: int | None) -> Reference | None:
    """The artifact of this name of an iteration; by default of the last iteration that has one."""
    made = run.artifacts.iterations
    if iteration is not None:
        made = made[iteration - 1 : iteration] if iteration >= 1 else []
    return next((each[name] for each in reversed(made) if name in each), None)


def _of_variant(what: str, run: RecordedRun) -> Source | None:
    """A run's contribution to a table cell, named by the variant, a slash and the column's heading."""
    heading, tested = _after(run.artifacts.variant, what), run.artifacts.test
    value = None if heading is None or tested is None else _value(heading, tested, run)
    return None if tested is None or value is None else Source(value, tested, run)


def _of_row(what: str, runs: Sequence[RecordedRun]) -> list[Source]:
    """A table cell in the row of a baseline or of the warm start, which all runs of an ablation share."""
    found: dict[Reference, Source] = {}
    for run in runs:
        for row, evaluation in run.players.items():
            heading = _after(row, what)
            value = None if heading is None or evaluation in found else _value(heading, evaluation, run)
            if value is not None:
                found[evaluation] = Source(value, evaluation, None, row)
    return list(found.values())


def _value(heading: str, evaluation: Reference, run: RecordedRun) -> float | None:
    """An evaluation's value in a column of the table, or by a metric that MLflow has of a run's test."""
    column = next((column for column in _columns(run) if column.heading == heading), None)
    if column is not None:
        return cell(evaluation, _world(run), column)
    metrics = {metric_name(name): value for name, value in default_store().metrics(evaluation).items()}
    return metrics.get(metric_name(heading))


def _of_difference(what: str, runs: Sequence[RecordedRun]) -> NumberAnswer | None:
    """A gain over the warm start, or the difference of two variants, in either order."""
    asked = DIFFERENCE.fullmatch(what)
    if asked is None or asked["column"] not in (None, *COMPARED):
        return None
    one, other, column = asked["first"], asked["second"], asked["column"]
    groups = grouped(runs)
    judgement = judged(groups, stated=1.0)
    gains = [standing.gain for standing in judgement.standings if standing.gain is not None]
    for comparison in [*gains, *judgement.pairs]:
        if {comparison.first, comparison.second} == {one, other}:
            sources = [*_tests(one, groups), *_tests(other, groups)]
            over = f"of the difference in {judgement.measure}, over {comparison.difference.over}"
            turned = comparison.first != one
            if column is not None:
                return NumberAnswer(COMPARED[column](comparison, turned), over, sources)
            value = -comparison.difference.value if turned else comparison.difference.value
            return NumberAnswer(value, over.removeprefix("of the "), sources)
    return None


def _of_verdict(what: str, runs: Sequence[RecordedRun]) -> NumberAnswer | None:
    """A number from the report's verdicts on one variant."""
    variant, _, heading = what.rpartition("/")
    groups = grouped(runs) if heading in STANDING else []
    if variant not in [group.name for group in groups]:
        return None
    if heading == GAIN:
        return _of_difference(f"{variant} - {WARM_START}", runs)
    judgement = judged(groups, stated=1.0)
    (standing,) = (each for each in judgement.standings if each.name == variant)
    (learning,) = (each for each in judgement.learning if each.name == variant)
    intervals = (standing.mean, standing.interquartile_mean, standing.normalised, learning.area)
    found = dict(zip(STANDING, intervals, strict=False))[heading]
    if found is None:
        return None
    sources = _tests(variant, groups)
    if heading == "normalised":
        sources += [source for player in FRAME for source in _tests(player, groups)]
    if heading == "mean over the curve":
        sources = [source for source in sources if source.run for source in _on_the_way(source.run)]
    over = SINGULAR[found.over] if found.count == 1 else found.over
    return NumberAnswer(found.value, f"of {judgement.measure}, over {found.count} {over}", sources)


def _tests(row: str, groups: Sequence[Group]) -> list[Source]:
    """The test results of a group of runs, or of a baseline, by the primary metric."""
    every = [run for group in groups for run in group.runs.values()]
    heading = _world(every[0]).primary_column.heading
    for group in groups:
        if group.name == row:
            runs = [run for _, run in sorted(group.runs.items())]
            return [source for run in runs if (source := _of_variant(f"{run.artifacts.variant}/{heading}", run))]
    return _of_row(f"{row}/{heading}", every)


def _on_the_way(run: RecordedRun) -> Iterator[Source]:
    """A run's evaluations on the validation task set, from the warm start on."""
    for number in range(len(run.artifacts.iterations) + 1):
        source = _of_curve(f"validation/{SAMPLED}", run, number)
        if source is not None:
            yield source


def _after(row: str, what: str) -> str | None:
    """The text after the row's name and a slash; None if it does not start with them."""
    return what.removeprefix(f"{row}/") if what.startswith(f"{row}/") else None


def _columns(run: RecordedRun) -> list[Column]:
    attempts = run.artifacts.experiment["agent"]["mode"].get("attempts") or 1
    return table_columns(_world(run), attempts)


def _world(run: RecordedRun) -> World:
    section = run.artifacts.experiment["world"]
    return _made_world(section["name"], json.dumps(section["parameters"]))


@cache
def _made_world(name: str, parameters: str) -> World:
    return make_world(name, json.loads(parameters))
