"""`turnwise lineage`: a name of a number, resolved to its value and the artifacts that it is computed from.

    update/entropy_nats               a metric in MLflow, of an iteration (by default the last)
    validation/greedy                 a point of a learning curve in the report, likewise
    mt-grpo/greedy success            a table cell of the report: a variant, a baseline or the warm start, and a column
    mt-grpo/interquartile mean        a column of the report's verdicts, of a variant
    mt-grpo - warm start              a gain, or the difference of two variants, by the primary metric
    mt-grpo - grpo-or/corrected p     what else the verdicts tell of a difference: see COMPARED
    mt-grpo - grpo-or/greedy effect   a number of the verdicts over greedy episodes; also mt-grpo/greedy mean
    mt-grpo/iterations to 0.8         the median iteration at which its runs reached a success threshold
    mt-grpo/share above 0.5           a point of its performance profile
    mt-grpo/tokens sampled            a row of account.csv: what the runs of a variant cost together

Values are computed as in the report: see `turnwise.results.cells` and `turnwise.statistics.verdict`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.text import Text
from rich.tree import Tree

from turnwise.data.task_sets import task_set_digest, tasks_of
from turnwise.data.trajectory_files import GREEDY, SAMPLED
from turnwise.errors import ConfigurationError
from turnwise.records.metrics import metrics_in
from turnwise.records.results import recorded_seconds
from turnwise.reporting.data.run_groups import Group, grouped, judged
from turnwise.reporting.data.tables import COUNTS, SECONDS
from turnwise.results import history
from turnwise.results.cells import WARM_START, cell, column_of, table_columns
from turnwise.results.history import Opener
from turnwise.statistics.interval import SINGULAR, mean
from turnwise.statistics.verdict import Comparison, Judgement
from turnwise.store import Reference, default_store
from turnwise.store.digests import digest_of
from turnwise.store.provenance import SHOWN_DIGITS, Ancestor, ancestry, codes, platforms, shortened
from turnwise.store.withheld import left_out_of
from turnwise.suggestions import meant
from turnwise.tracking.finding import UNCOMMITTED_FILE, RecordedRun, RunArtifacts, read_text
from turnwise.tracking.values import mlflow_name
from turnwise.training_runs.iteration_stages import accounts, recorded_groups
from turnwise.world import SPLITS, Column

DIFFERENCE = re.compile(r"(?P<first>.+?) [-−] (?P<second>[^/]+)(/(?P<column>.+))?")
"""A difference of two rows, with a minus sign as in the report or with a hyphen as typed, and a column of COMPARED."""
COMPARED: Mapping[str, Callable[[Comparison, bool], float | None]] = {
    "difference": lambda comparison, swap: -comparison.difference.value if swap else comparison.difference.value,
    "p": lambda comparison, swap: comparison.p,
    "corrected p": lambda comparison, swap: comparison.corrected,
    "exact p": lambda comparison, swap: comparison.exact,
    "effect": lambda comparison, swap: (
        -comparison.effect if swap and comparison.effect is not None else comparison.effect
    ),
    "improvement": lambda comparison, swap: (
        1.0 - comparison.improvement if swap and comparison.improvement is not None else comparison.improvement
    ),
}
"""What the report's verdicts tell of a comparison, as it stands or with its two rows turned round."""
THRESHOLD = re.compile(r"(?P<row>.+)/(?P<what>iterations to|share above) (?P<threshold>\d+(\.\d+)?)")
"""When the runs of a variant reached a threshold, or the share of its results above one."""
GAIN = "gain over the warm start"
STANDING = ("mean", "interquartile mean", "normalised", "mean over the curve", GAIN)
"""The columns of the report's verdicts on one variant."""
OF_GREEDY = "greedy "
"""Stands before a column of the verdicts over greedy episodes."""
CHANGED_FILE = re.compile(r'^diff --git ("?)a/(.*)\1 ("?)b/\2\3$', re.MULTILINE)
"""Where a file begins in a diff, which is made without renames."""
FRAME = ("random", "oracle")
"""The baseline policies whose means are 0 and 1 on the report's normalised scale."""


@dataclass(frozen=True)
class Source:
    """One value, of a run or of another row of the table, and the artifact that it is read from."""

    value: float | None
    reference: Reference
    run: RecordedRun | None
    row: str = ""
    """Name of a baseline policy, or `warm start`; empty for a run and for an artifact that was asked for directly."""


@dataclass(frozen=True)
class NumberAnswer:
    """A number as in the report, and everything that it is computed from."""

    value: float | None
    manner: str
    """How the value is computed from its sources; empty where it is the value of a single source."""
    sources: list[Source]


def answer(what: str, runs: Sequence[RecordedRun], iteration: int | None = None, *, opened: Opener) -> NumberAnswer:
    """Resolve a number's name in these runs; the names are listed at the top of this file.

    `opened` gives the folder of a rollout, in which what it cost is counted.

    Raises ConfigurationError if no run has it.
    """
    ablations = {run.ablation for run in runs}
    if len(ablations) == 1:  # a run is called `ABLATION/NAME` elsewhere
        what = what.removeprefix(f"{ablations.pop()}/")
    if sources := sources_of(what, runs, iteration):
        values = [source.value for source in sources if source.value is not None]
        manner = f"mean of {len(values)} {'runs' if sources[0].run else 'evaluations'}" if len(values) > 1 else ""
        return NumberAnswer(mean(values) if values else None, manner, sources)
    number: NumberAnswer | None = None
    if iteration is None:
        number = next((number for reader in READERS if (number := reader(what, runs)) is not None), None)
        number = number or _answer_cost(what, runs, opened)
    if number is None:
        variants, baselines = [run.artifacts.variant for run in runs], [name for run in runs for name in run.baselines]
        rows = dict.fromkeys([*variants, *baselines])
        columns = dict.fromkeys(column.heading for run in runs for column in _columns(run))
        groups = ("test", *recorded_groups())
        looked_in = ", ".join(dict.fromkeys(run.ablation or run.name for run in runs))
        cells = [f"{row}/{column}" for row in rows for column in (*columns, *STANDING)]
        at = "" if iteration is None else f" at iteration {iteration}, of which tables and tests have nothing"
        raise ConfigurationError(
            "lineage starts from a number of the report, a metric of a run, or an artifact of the store; "
            f"{what!r} is none of them in {looked_in}{at}{meant(what, cells)}\n"
            "Say one of these, or --of NAME for another run or ablation:\n"
            f"  ROW/COLUMN     rows {', '.join(rows)}; columns {', '.join(columns)}, {', '.join(STANDING)}, "
            "iterations to T, share above T\n"
            f"  ROW/COST       {', '.join(costs())}\n"
            f"  ROW - ROW      or ROW - ROW/VALUE with {', '.join(COMPARED)}\n"
            f"  GROUP/METRIC   as in MLflow; groups {', '.join(groups)}\n"
            "  KIND/DIGEST    an artifact, by the beginning of its digest",
            "TW-unknown-source",
        )
    return number


def sources_of(what: str, runs: Sequence[RecordedRun], iteration: int | None = None) -> list[Source]:
    """The sources of a metric, a point of a curve or a table cell: one per run that has it, to be averaged.

    Empty if no run has it.
    """
    for find_source in (_metric_source, _curve_source):
        if sources := [source for run in runs if (source := find_source(what, run, iteration)) is not None]:
            return sources
    if iteration is not None:
        return []  # a cell of the table is of the test, after the last
    return [source for run in runs if (source := _variant_source(what, run)) is not None] or _row_sources(what, runs)


def _metric_source(what: str, run: RecordedRun, iteration: int | None) -> Source | None:
    """A metric by its name in MLflow."""
    group = what.partition("/")[0]
    reference = _artifact_of(group, run, iteration)
    if reference is None:
        return None
    metrics = {mlflow_name(name): value for name, value in metrics_in(group, reference).items()}
    name = mlflow_name(what)
    return Source(metrics[name], reference, run) if name in metrics else None


def _curve_source(what: str, run: RecordedRun, iteration: int | None) -> Source | None:
    """A point of a curve of the report, by the curve's name: `validation` and a mode, or an artifact and its metric."""
    kind, _, name = what.partition("/")
    if kind == "validation" and name in (SAMPLED, GREEDY):
        evaluation = _artifact_of(kind, run, iteration)
        if evaluation is None:
            return None
        world = run.artifacts.world
        return Source(cell(evaluation, world, column_of(world, name)), evaluation, run)
    artifact = _latest(kind, run, iteration)
    metrics = {} if artifact is None else default_store().metrics(artifact)
    return Source(metrics[name], artifact, run) if artifact is not None and name in metrics else None


def _artifact_of(group: str, run: RecordedRun, iteration: int | None) -> Reference | None:
    artifacts = run.artifacts
    test_evaluations = {"test": artifacts.test, "test_at_horizon": artifacts.test_at_horizon}
    if group in test_evaluations:
        return test_evaluations[group] if iteration is None else None
    if iteration == 0:
        return {"validation": artifacts.start, "validation_at_horizon": artifacts.start_at_horizon}.get(group)
    stage = recorded_groups().get(group)
    return None if stage is None else _latest(stage.name, run, iteration)


def _latest(name: str, run: RecordedRun, iteration: int | None) -> Reference | None:
    """The artifact of this name of an iteration; by default of the last iteration that has one."""
    iterations = run.artifacts.iterations
    if iteration is not None:
        iterations = iterations[iteration - 1 : iteration] if iteration >= 1 else []
    return next((each[name] for each in reversed(iterations) if name in each), None)


def _variant_source(what: str, run: RecordedRun) -> Source | None:
    """A run's contribution to a table cell, named by the variant, a slash and the column's heading."""
    heading, test = _after(run.artifacts.variant, what), run.artifacts.test
    value = None if heading is None or test is None else _value(heading, test, run)
    return None if test is None or value is None else Source(value, test, run)


def _row_sources(what: str, runs: Sequence[RecordedRun]) -> list[Source]:
    """A table cell in the row of a baseline or of the warm start, which all runs of an ablation share."""
    by_evaluation: dict[Reference, Source] = {}
    for run in runs:
        for row, evaluation in run.baselines.items():
            heading = _after(row, what)
            value = None if heading is None or evaluation in by_evaluation else _value(heading, evaluation, run)
            if value is not None:
                by_evaluation[evaluation] = Source(value, evaluation, None, row)
    return list(by_evaluation.values())


def _value(heading: str, evaluation: Reference, run: RecordedRun) -> float | None:
    """An evaluation's value in a column of the table, or by a metric that MLflow has of a run's test."""
    column = next((column for column in _columns(run) if column.heading == heading), None)
    if column is not None:
        return cell(evaluation, run.artifacts.world, column)
    metrics = {mlflow_name(name): value for name, value in default_store().metrics(evaluation).items()}
    return metrics.get(mlflow_name(heading))


def _answer_difference(what: str, runs: Sequence[RecordedRun]) -> NumberAnswer | None:
    """A gain over the warm start, or the difference of two variants, in either order."""
    match = DIFFERENCE.fullmatch(what)
    if match is None:
        return None
    one, other, full_column = match["first"], match["second"], match["column"] or "difference"
    column = full_column.removeprefix(OF_GREEDY)
    if column not in COMPARED:
        return None
    groups = grouped(runs)
    judgement = _judgement(groups, full_column)
    for comparison in judgement.comparisons:
        if {comparison.first, comparison.second} == {one, other}:
            sources = [*_tests(one, groups, judgement.measure), *_tests(other, groups, judgement.measure)]
            difference = f"difference in {judgement.measure}, over {comparison.difference.over}"
            over = difference if column == "difference" else f"of the {difference}"
            over += _once(sources)
            return NumberAnswer(COMPARED[column](comparison, comparison.first != one), over, sources)
    return None


def _once(sources: Sequence[Source]) -> str:
    """What to know of a comparison for which seeds were added: the report has its value at all looks together."""
    races = {run.race for source in sources if (run := source.run) is not None and run.race is not None}
    if not races:
        return ""
    verdicts = " ".join(sorted(filter(None, races))) or "seeds are still added"
    return f"; tested once, as if the number of seeds had been fixed. At all looks together: {verdicts}"


def _judgement(groups: Sequence[Group], column: str) -> Judgement:
    """The verdicts in which this column stands, over greedy or over sampled episodes."""
    return judged(groups, None if column.startswith(OF_GREEDY) else 1.0)


def _answer_verdict(what: str, runs: Sequence[RecordedRun]) -> NumberAnswer | None:
    """A number from the report's verdicts on one variant."""
    variant, _, full_heading = what.rpartition("/")
    heading = full_heading.removeprefix(OF_GREEDY)
    groups = grouped(runs) if heading in STANDING else []
    if variant not in [group.name for group in groups]:
        return None
    if heading == GAIN:
        difference = full_heading.replace(GAIN, "difference")
        return _answer_difference(f"{variant} - {WARM_START}/{difference}", runs)
    judgement = _judgement(groups, full_heading)
    (standing,) = (each for each in judgement.standings if each.name == variant)
    area = next((each.area for each in judgement.learning if each.name == variant), None)
    intervals = (standing.mean, standing.interquartile_mean, standing.normalised, area)
    interval = dict(zip(STANDING, intervals, strict=False))[heading]
    if interval is None:
        return None
    sources = _tests(variant, groups, judgement.measure)
    if heading == "normalised":
        sources += [source for baseline in FRAME for source in _tests(baseline, groups, judgement.measure)]
    if heading == "mean over the curve":
        sources = [source for source in sources if source.run for source in _on_the_way(source.run)]
    over = SINGULAR[interval.over] if interval.count == 1 else interval.over
    return NumberAnswer(interval.value, f"of {judgement.measure}, over {interval.count} {over}", sources)


def _answer_threshold(what: str, runs: Sequence[RecordedRun]) -> NumberAnswer | None:
    """When the runs of a variant reached a threshold (the median), or a point of its performance profile."""
    match = THRESHOLD.fullmatch(what)
    groups = grouped(runs) if match is not None else []
    if match is None or match["row"] not in [group.name for group in groups]:
        return None
    variant, threshold = match["row"], float(match["threshold"])
    judgement = judged(groups, threshold)
    tests = _tests(variant, groups, judgement.measure)
    if match["what"] == "iterations to":
        (times,) = (each.reached for each in judgement.learning if each.name == variant)
        reached_count = sum(at is not None for at in times.at)
        sources = [source for test in tests if test.run for source in _on_the_way(test.run)]
        return NumberAnswer(times.median, f"median over runs; {reached_count} of {len(times.at)} reached it", sources)
    profile = judgement.profiles.get(variant, [])
    share = next((share for at, share in profile if math.isclose(at, threshold)), None)
    return None if share is None else NumberAnswer(share.value, f"of {judgement.measure}, tasks and runs", tests)


def _answer_cost(what: str, runs: Sequence[RecordedRun], opened: Opener) -> NumberAnswer | None:
    """What all runs of a variant cost together; an artifact that several runs share costs its seconds once."""
    variant, _, cost = what.partition("/")
    own = [run.artifacts for run in runs if run.artifacts.variant == variant]
    if not own or cost not in costs():
        return None
    counts = dict(COUNTS)
    if cost in counts:
        (work,) = history.work([_history(run) for run in own], opened)
        value = float(counts[cost](work))
    else:
        value = recorded_seconds(own)[cost.removesuffix(SECONDS)]
    # The test evaluation descends from everything that the run has made.
    sources = [Source(None, run.artifacts.test or run.artifacts.start, run) for run in runs if run.artifacts in own]
    return NumberAnswer(value, f"of {len(own)} {'run' if len(own) == 1 else 'runs'} together", sources)


READERS = (_answer_difference, _answer_threshold, _answer_verdict)
"""The numbers of the report's verdicts, each with its form of name."""


def costs() -> list[str]:
    """What account.csv tells of each variant, as it is headed there."""
    return [*dict(COUNTS), *(f"{account}{SECONDS}" for account in accounts())]


def _history(run: RunArtifacts) -> history.RunHistory:
    evaluations = [run.start, *(artifacts["evaluation"] for artifacts in run.iterations if "evaluation" in artifacts)]
    evaluations += [] if run.test is None else [run.test]
    return history.RunHistory(run.variant, run.seed, run.iterations, evaluations)


def _tests(row: str, groups: Sequence[Group], heading: str) -> list[Source]:
    """The test results of a group of runs, or of a baseline, in one column of the table."""
    every = [run for group in groups for run in group.runs.values()]
    for group in groups:
        if group.name == row:
            runs = [run for _, run in sorted(group.runs.items())]
            return [source for run in runs if (source := _variant_source(f"{run.artifacts.variant}/{heading}", run))]
    return _row_sources(f"{row}/{heading}", every)


def _on_the_way(run: RecordedRun) -> Iterator[Source]:
    """A run's evaluations on the validation task set, from the warm start on."""
    for number in range(len(run.artifacts.iterations) + 1):
        source = _curve_source(f"validation/{SAMPLED}", run, number)
        if source is not None:
            yield source


def _after(row: str, what: str) -> str | None:
    """The text after the row's name and a slash; None if it does not start with them."""
    return what.removeprefix(f"{row}/") if what.startswith(f"{row}/") else None


def _columns(run: RecordedRun) -> list[Column]:
    attempts = run.artifacts.experiment["agent"]["mode"].get("attempts") or 1
    return table_columns(run.artifacts.world, attempts)


def print_answer(what: str, number: NumberAnswer, console: Console) -> None:
    """Print the tree of a number: the artifacts that it is read from, their ancestors, and code, parameters, platform.

    If several artifacts of one run follow each other, only the last is expanded: it has the others' ancestors too.
    """
    value = "" if number.value is None else f" = {number.value:.4g}"
    root = Tree(Text(f"{what}{value}{f'  ({number.manner})' * bool(number.manner)}", style="bold"))
    for place, source in enumerate(number.sources):
        later = number.sources[place + 1 : place + 2]
        branch = root
        value_text = "" if source.value is None else f"{source.value:.4g}  "
        if source.run is not None:
            if [each.run for each in later] == [source.run]:
                root.add(Text(f"{value_text}run {source.run.name}  {shortened(source.reference)}"))
                continue
            branch = root.add(Text(f"{value_text}run {source.run.name}  MLflow {source.run.id[:SHOWN_DIGITS]}"))
            parameters = digest_of(source.run.artifacts.experiment)
            branch.add(Text(f"parameters {parameters[:SHOWN_DIGITS]}  artifacts.json of the run"))
            _add_task_sets(branch, source.run)
        elif source.row:
            branch = root.add(Text(f"{value_text}{source.row}"))
        _add_ancestry(branch, source.reference)
    console.print(root)


def _add_ancestry(branch: Tree, reference: Reference) -> None:
    """Add the ancestors of an artifact, the commits of the code that made them, and the platforms."""
    tree = ancestry(default_store(), reference)
    _add(branch, tree)
    for code in codes(tree):
        diff = "as committed" if code.uncommitted == "none" else f"and the diff {code.uncommitted[:SHOWN_DIGITS]}"
        artifacts = "1 artifact" if code.artifacts == 1 else f"{code.artifacts} artifacts"
        made_by = "code outside of Git" if code.commit == "none" else f"commit {code.commit[:SHOWN_DIGITS]} {diff}"
        branch.add(Text(f"{artifacts} by {made_by}"))
    if platform_digests := platforms(tree):
        branch.add(Text("platform " + ", ".join(digest[:SHOWN_DIGITS] for digest in platform_digests)))


def _add_task_sets(branch: Tree, run: RecordedRun) -> None:
    """Add the task sets by the digests of their tasks, which are the same on every machine."""
    task_sets = {split: tasks_of(run.artifacts.task_set(split), split) for split in SPLITS}
    digests = [f"{split} {task_set_digest(tasks)[:SHOWN_DIGITS]}" for split, tasks in task_sets.items()]
    branch.add(Text(f"task sets {', '.join(digests)}"))


def _add(branch: Tree, ancestor: Ancestor) -> None:
    node = branch.add(Text(ancestor.line))
    for each in ancestor.inputs:
        if each.role == "policy" and ancestor.earlier:
            _add(node.add(Text(f"earlier updates: {len(ancestor.earlier)}, from")), each)
        else:
            _add(node, each)


def changed_files(diff: str) -> list[str]:
    """The names of the files that a diff changes, also of those that it removes."""
    return [name for _, name, _ in CHANGED_FILE.findall(diff)]


def print_diffs(uri: str, sources: list[Source], console: Console) -> None:
    """Print which files the uncommitted changes touched, if there were any."""
    runs = {source.run.id: source.run for source in sources if source.run is not None}
    for run in runs.values():
        if run.tags.get("uncommitted", "none") == "none":
            continue
        diff = read_text(uri, run.id, UNCOMMITTED_FILE) or ""
        files = changed_files(diff)
        where = f"{UNCOMMITTED_FILE} of MLflow run {run.id[:SHOWN_DIGITS]}"
        console.print(f"diff {run.tags['uncommitted'][:SHOWN_DIGITS]}: {', '.join(files)}  ({where})")
        if left_out := left_out_of(diff):
            console.print(f"    without {left_out}")
