"""A suite from recorded runs: the normalised score of each rule in each world, its measures, and what is missing.

A rule is a variant, by its name. A run's score is its world's primary metric on the test task set, over sampled
episodes, on the scale on which the random policy is 0 and the oracle 1, as its ablation recorded both. Where several
ablations have run a rule in a world, the newest counts.
"""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from turnwise.errors import ConfigurationError
from turnwise.reporting.data.tables import TextTable, text_cell
from turnwise.reporting.formatting import UNDEFINED, number, with_bounds
from turnwise.results.cells import cell
from turnwise.statistics import Interval, student_over_seeds
from turnwise.statistics.suite import Suite, common_worlds, measure_suite
from turnwise.store import default_store
from turnwise.store.digests import digest_of
from turnwise.tracking.finding import RecordedRun
from turnwise.tracking.library import PARENT


@dataclass(frozen=True)
class SuiteReport:
    """What is known of rules in worlds."""

    rules: list[str]
    worlds: list[str]
    cells: dict[str, dict[str, Interval]]
    """By rule and world, the mean over its seeds of the normalised scores, each in `sample`."""
    suite: Suite | None
    """Over the worlds that every rule has; None where there is none."""
    missing: list[str]
    """What is not there, in sentences."""

    def to_json(self) -> str:
        """All of it as JSON text."""
        return json.dumps(dataclasses.asdict(self), indent=1, ensure_ascii=False, allow_nan=False) + "\n"

    @property
    def headline(self) -> str:
        """What stands first, in a sentence."""
        if self.suite is None:
            return f"No world has runs of all {len(self.rules)} rules"
        middle = max((rule.interquartile_mean for rule in self.suite.rules), key=lambda mean: mean.value)
        best = [r.name for r in self.suite.rules if number(r.interquartile_mean.value, 2) == number(middle.value, 2)]
        count = len(self.suite.worlds)
        return (
            f"{' and '.join(best)} {'has' if len(best) == 1 else 'have'} the highest interquartile mean over {count} "
            f"world{'' if count == 1 else 's'}: {with_bounds(middle, 2)}"
        )


def collect_suite(runs: Sequence[RecordedRun], rules: Sequence[str] = (), worlds: Sequence[str] = ()) -> SuiteReport:
    """The suite of recorded runs, in the order in which they were started.

    `rules` and `worlds` name those that count; empty: all that were recorded.

    Raises ConfigurationError where no run has a rule and a world of those that are named.
    """
    missing: list[str] = []
    labels = _world_labels(runs)
    recorded_scores: dict[tuple[str, str], dict[str, dict[int, float]]] = {}
    untested: dict[tuple[str, str], int] = {}
    without_scale: dict[str, None] = {}
    for run in runs:
        rule, world = run.artifacts.variant, labels[_identity(run)]
        if (rules and rule not in rules) or (worlds and world not in worlds):
            continue
        if run.artifacts.test is None or run.left_out or not default_store().holds(run.artifacts.test):
            untested[rule, world] = untested.get((rule, world), 0) + 1
            continue
        score = _normalised_score(run)
        if score is None:
            without_scale[world] = None
        else:
            ablation_scores = recorded_scores.setdefault((rule, world), {})
            ablation_scores.setdefault(run.tags.get(PARENT, ""), {})[run.artifacts.seed] = score
    pairs = [*recorded_scores, *untested]
    if not (pairs or without_scale) and (rules or worlds):
        recorded = dict.fromkeys(f"{run.artifacts.variant} in {labels[_identity(run)]}" for run in runs)
        raise ConfigurationError(
            "a suite must have a run of one of the rules and worlds that are named; found none of "
            f"{', '.join([*rules, *worlds])}: name some of {', '.join(recorded)}",
            "TW-unknown-run",
        )
    rules = list(rules) or list(dict.fromkeys(rule for rule, _ in pairs))
    worlds = list(worlds) or list(dict.fromkeys(world for _, world in pairs))
    newest = {at: list(list(by_ablation.values())[-1].values()) for at, by_ablation in recorded_scores.items()}
    scores = {rule: {world: newest[rule, world] for world in worlds if (rule, world) in newest} for rule in rules}
    missing += [
        f"{rule} in {world}: {_absence(untested.get((rule, world), 0))}"
        for rule in rules
        for world in worlds
        if (rule, world) not in recorded_scores
    ]
    missing += [f"{world}: no oracle better than the random policy is recorded, so no scale" for world in without_scale]
    shared = common_worlds(scores) if scores else []
    return SuiteReport(
        rules,
        worlds,
        {
            rule: {world: student_over_seeds(values) for world, values in world_scores.items()}
            for rule, world_scores in scores.items()
        },
        measure_suite(scores) if shared else None,
        missing,
    )


def suite_tables(report: SuiteReport) -> list[TextTable]:
    """The tables of a suite, without empty ones."""
    by_world = TextTable(
        "worlds",
        "World by world: random = 0, oracle = 1",
        ["", *report.worlds],
        [
            [rule, *(text_cell(report.cells.get(rule, {}).get(world)) for world in report.worlds)]
            for rule in report.rules
        ],
        [f"Means over seeds with Student's t intervals; {UNDEFINED} where nothing is recorded."],
    )
    if report.suite is None:
        return [by_world]
    measures = TextTable(
        "measures",
        f"Over {', '.join(report.suite.worlds)}: random = 0, oracle = 1",
        ["", "inter-\nquartile\nmean", "mean", "optimality\ngap", "rank"],
        [
            [rule.name, *map(text_cell, (rule.interquartile_mean, rule.mean, rule.optimality_gap, rule.rank))]
            for rule in report.suite.rules
        ],
        [
            "Interquartile mean: of all runs, without the lowest and the highest quarter. Optimality gap: what is "
            "missing to the oracle. Rank: the mean place among the rules, 1 the best. Intervals are of a bootstrap "
            "within each world; with few runs they are too narrow, so no verdict follows from them: turnwise compare "
            "gives verdicts."
        ],
    )
    chances = TextTable(
        "improvement",
        "Probability that a run of the first is better",
        ["", "P(better)"],
        [[f"{one} over {other}", text_cell(chance)] for one, other, chance in report.suite.improvement],
    )
    return [measures, *([chances] if chances.rows else []), by_world]


def _absence(untested: int) -> str:
    if untested == 0:
        return "no run"
    return f"{untested} run{'' if untested == 1 else 's'}, not tested, left out or not in this store"


def _identity(run: RecordedRun) -> tuple[str, str]:
    section = run.artifacts.experiment["world"]
    return section["name"], digest_of(section)


def _world_labels(runs: Sequence[RecordedRun]) -> dict[tuple[str, str], str]:
    """The worlds' names; where one name has several sets of parameters, with the ablation that first had them.

    Where ablations of one name had several, with its id, too: as one they would count by their newest alone.
    """
    first: dict[tuple[str, str], RecordedRun] = {}
    for run in runs:
        first.setdefault(_identity(run), run)
    names = Counter(name for name, _ in first)
    ablations = Counter((name, run.ablation) for (name, _), run in first.items())

    def label(name: str, run: RecordedRun) -> str:
        if names[name] == 1:
            return name
        alike, parent = ablations[name, run.ablation] > 1, run.tags.get(PARENT, "")
        return f"{name} ({run.ablation}{f' {parent[:6]}' if alike else ''})"

    return {(name, digest): label(name, run) for (name, digest), run in first.items()}


def _normalised_score(run: RecordedRun) -> float | None:
    """The run's score between the random policy and the oracle; None where these give no scale."""
    world = run.artifacts.world
    assert run.artifacts.test is not None, "only tested runs have a score"
    evaluations = [run.artifacts.test, *(run.baselines.get(name) for name in ("random", "oracle"))]
    score, low, high = (None if each is None else cell(each, world, world.primary_column) for each in evaluations)
    if score is None or low is None or high is None or high <= low:
        return None
    return (score - low) / (high - low)
