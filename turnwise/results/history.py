"""The course of training from an ablation's artifacts: curves by topic, episode endings, alarms, and the work done."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.compute as compute
import pyarrow.parquet as parquet

from turnwise.data.outcomes import NamedRun
from turnwise.data.trajectory import Ending
from turnwise.data.trajectory_files import GREEDY, SAMPLED, TRAJECTORIES_FILE, TURNS_FILE
from turnwise.results.outcomes import VariantWork
from turnwise.results.report_data import SHARE, AlarmRaised, Curve, Endings, Measure
from turnwise.store import Reference, default_store

if TYPE_CHECKING:
    from turnwise.health.alarms import AlarmRecord


Opener = Callable[[Reference], Path]
"""Opens an artifact: gives its folder, in which pruned files are made again first."""


@dataclass(frozen=True)
class RunHistory(NamedRun):
    """The artifacts of one run that a report reads."""

    variant: str
    seed: int
    iterations: Sequence[Mapping[str, Reference]]
    """Per iteration its artifacts, by name (`rollout`, `credit`, `policy`, `health`, ...)."""
    evaluations: Sequence[Reference]
    """On the validation task set, from the warm start on, then on the test task set."""

    def series(self, artifact: str, metric: str) -> list[tuple[int, float]]:
        """(iteration, value) of a metric of an artifact, for the iterations that have it; iterations count from 1."""
        numbered_iterations = enumerate(self.iterations, start=1)
        by_number = ((number, self._metrics(iteration, artifact)) for number, iteration in numbered_iterations)
        return [(number, metrics[metric]) for number, metrics in by_number if metric in metrics]

    def metrics(self, artifact: str) -> list[str]:
        """The names of an artifact's metrics over all iterations, in order of first appearance."""
        return list(dict.fromkeys(name for iteration in self.iterations for name in self._metrics(iteration, artifact)))

    def _metrics(self, iteration: Mapping[str, Reference], artifact: str) -> dict[str, float]:
        return default_store().metrics(iteration[artifact]) if artifact in iteration else {}


REWARDS, HORIZON = "Rewards in training", "Horizon"
LIMIT = Measure(topic=HORIZON, artifact="health", metric="horizon/limit", heading="limit on turns")
AT_LIMIT = Measure(
    topic=HORIZON, artifact="health", metric="horizon/share_at_limit", heading="episodes that ended at it", unit=SHARE
)


def curves(runs: Sequence[RunHistory], plotted: Sequence[Measure]) -> list[Curve]:
    """All curves of the course of training: the rewards, the horizon if it grows or differs, and what else is plotted.

    Measures of one topic need not follow each other; topics are in the order of their first one.
    """
    measures = _rewards(runs)
    limits = [tuple(run.series(LIMIT.artifact, LIMIT.metric)) for run in runs]
    changes = any(len({value for _, value in series}) > 1 for series in limits)
    if changes or len(set(limits)) > 1:
        measures += [LIMIT, AT_LIMIT]
    topics = dict.fromkeys(measure.topic for measure in plotted)
    measures += [measure for topic in topics for measure in plotted if measure.topic == topic]
    return [curve for measure in measures for curve in _curves(measure, runs)]


def _rewards(runs: Sequence[RunHistory]) -> list[Measure]:
    """The weighted reward, and each of its parts unweighted; a part within [0, 1] is plotted as a share."""
    parts = sorted({name for run in runs for name in run.metrics("rollout") if name.startswith("reward/")})
    measures = [Measure(topic=REWARDS, artifact="credit", metric="reward", heading="weighted reward")]
    for part in parts:
        values = [value for run in runs for _, value in run.series("rollout", part)]
        unit = SHARE if all(0.0 <= value <= 1.0 for value in values) else ""
        heading = part.removeprefix("reward/")
        measures.append(Measure(topic=REWARDS, artifact="rollout", metric=part, heading=heading, unit=unit))
    return measures


def _curves(measure: Measure, runs: Sequence[RunHistory]) -> list[Curve]:
    """The curves of a measure, of each run that has it; none if it is 0 everywhere."""
    series = [(run, run.series(measure.artifact, measure.metric)) for run in runs]
    if not any(value != 0.0 for _, points in series for _, value in points):
        return []
    name = f"{measure.artifact}/{measure.metric}"
    return [
        Curve(name, measure.heading, run.variant, run.seed, points, measure.unit, measure.topic)
        for run, points in series
        if points
    ]


def endings(runs: Sequence[RunHistory]) -> list[Endings]:
    """How training episodes ended: shares by iteration, per variant the mean over its runs that reached it."""
    by_variant = []
    for variant in dict.fromkeys(run.variant for run in runs):
        shares = {}
        for ending in Ending:
            values: dict[int, list[float]] = {}
            for run in runs:
                for number, value in run.series("rollout", f"ending/{ending}") if run.variant == variant else ():
                    values.setdefault(number, []).append(value)
            if any(map(any, values.values())):
                shares[ending.value] = [(number, sum(each) / len(each)) for number, each in sorted(values.items())]
        by_variant.append(Endings(variant, shares))
    return by_variant


def alarms(runs: Sequence[RunHistory], records: Sequence[Sequence[AlarmRecord]]) -> list[AlarmRaised]:
    """All alarms that were raised, run by run; `records` has per run those of its iterations."""
    return [
        AlarmRaised(run.variant, run.seed, record.iteration, words, record.response)
        for run, run_records in zip(runs, records, strict=True)
        for record in run_records
        for words in record.raised.values()
    ]


def work(runs: Sequence[RunHistory], opened: Opener) -> list[VariantWork]:
    """The work of each variant's runs, in episodes, turns and tokens; `opened` gives the folder of a rollout."""
    return [
        work_of(variant, [run for run in runs if run.variant == variant], opened)
        for variant in dict.fromkeys(run.variant for run in runs)
    ]


def work_of(name: str, runs: Sequence[RunHistory], opened: Opener) -> VariantWork:
    """The work of these runs together, under the name of their variant or a name of their own."""
    rollout_counts = [_count(opened(iteration["rollout"])) for run in runs for iteration in run.iterations]
    folders = [default_store().folder(evaluation) for run in runs for evaluation in run.evaluations]
    evaluation_counts = [_count(folder / mode) for folder in folders for mode in (GREEDY, SAMPLED)]
    trained = [value for run in runs for _, value in run.series("policy", "tokens")]
    episodes, turns, replies, observations = (sum(column) for column in zip(*rollout_counts, strict=True))
    return VariantWork(
        variant=name,
        runs=len(runs),
        episodes=episodes,
        turns=turns,
        sampled_tokens=replies,
        read_tokens=observations,
        trained_tokens=round(sum(trained)),
        evaluation_tokens=sum(reply_tokens for _, _, reply_tokens, _ in evaluation_counts),
    )


def _count(folder: Path) -> tuple[int, int, int, int]:
    """Episodes, turns, reply tokens and observation tokens of a folder of trajectories."""
    tokens = parquet.ParquetFile(folder / TURNS_FILE).read(["reply_tokens", "observation_tokens"])
    lengths = [compute.sum(compute.list_value_length(tokens[name])).as_py() or 0 for name in tokens.column_names]
    return parquet.read_metadata(folder / TRAJECTORIES_FILE).num_rows, len(tokens), lengths[0], lengths[1]
