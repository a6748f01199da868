"""The course of training from an ablation's artifacts: curves by topic, episode endings, alarms, and the work done."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow.compute as compute
import pyarrow.parquet as parquet

from tasks.health.health import read_health
from tasks.rollout.evaluate import GREEDY, SAMPLED
from turnwise.data.trajectory import Ending
from turnwise.data.trajectory_files import TRAJECTORIES_FILE, TURNS_FILE
from turnwise.reporting.data.history import AlarmRaised, Endings, VariantWork
from turnwise.reporting.data.report_data import SHARE, Curve
from turnwise.store import Reference, default_store

NATS = "nats per token"


@dataclass(frozen=True)
class RunHistory:
    """The artifacts of one run that a report reads, by iteration. All lists have one entry per iteration."""

    variant: str
    seed: int
    artifacts: Mapping[str, Sequence[Reference | None]]
    """By name (`rollout`, `credit`, `policy`, `health`), one entry per iteration."""
    evaluations: Sequence[Reference]
    """On the validation task set, from the warm start on, then on the test task set."""

    def series(self, artifact: str, metric: str) -> list[tuple[int, float]]:
        """(iteration, value) of a metric of an artifact, for the iterations that have it; iterations count from 1."""
        found = ((number, _metrics(made).get(metric)) for number, made in enumerate(self.artifacts[artifact], start=1))
        return [(number, value) for number, value in found if value is not None]

    def metrics(self, artifact: str) -> list[str]:
        """The names of an artifact's metrics over all iterations, in order of first appearance."""
        return list(dict.fromkeys(name for made in self.artifacts[artifact] for name in _metrics(made)))


@dataclass(frozen=True)
class Measure:
    """A metric of a run's artifacts that is plotted over iterations."""

    artifact: str
    metric: str
    heading: str
    unit: str = ""


TOPICS: Mapping[str, Sequence[Measure]] = {
    "Episodes in training": (
        Measure("rollout", "success", "success", SHARE),
        Measure("rollout", "turns", "turns that act per episode"),
        Measure("rollout", "turns/plan", "plans per episode"),
        Measure("rollout", "turns/reflect", "reflections per episode"),
        Measure("rollout", "turns/summary", "summaries per episode"),
        Measure("rollout", "reply_tokens", "reply tokens per episode"),
    ),
    "Updates": (
        Measure("policy", "entropy", "entropy of the replies", NATS),
        Measure("policy", "gradient_norm", "gradient norm before clipping"),
        Measure("policy", "mismatch", "mismatch of engine and learner", NATS),
        Measure("credit", "zero_variance_groups", "groups without signal"),
        Measure("credit", "reward_deviation_within_groups", "deviation of rewards within groups"),
    ),
    "Monitors": (
        Measure("health", "monitor/invalid_replies", "replies that could not be read", SHARE),
        Measure("health", "monitor/truncated_replies", "replies cut off at their longest", SHARE),
        Measure("health", "monitor/repeated_phrases", "phrases repeated within a reply", SHARE),
        Measure("health", "monitor/shared_phrases", "phrases shared within a group", SHARE),
        Measure("health", "monitor/distinct_replies", "distinct first replies of a group", SHARE),
        Measure("health", "monitor/reward_deviation_of_start", "deviation of rewards, of that at the start"),
        Measure("health", "monitor/entropy_of_start", "entropy, of that at the start"),
        Measure("health", "monitor/gradient_norm_of_median", "gradient norm, of its running median"),
        Measure("health", "monitor/kl_warm_start", "divergence from the warm start", NATS),
        Measure("health", "monitor/mutual_information", "mutual information of prompt and thought", "nats"),
        Measure("health", "monitor/retrieval_accuracy", "prompts found by their thought", SHARE),
    ),
}
REWARDS, HORIZON = "Rewards in training", "Horizon"
LIMIT = Measure("health", "horizon/limit", "limit on turns")
AT_LIMIT = Measure("health", "horizon/share_at_limit", "episodes that ended at it", SHARE)


def curves(runs: Sequence[RunHistory]) -> list[Curve]:
    """All curves of the course of training, by topic."""
    drawn = _curves(REWARDS, _rewards(runs), runs)
    if any(len({value for _, value in run.series(LIMIT.artifact, LIMIT.metric)}) > 1 for run in runs) or _differ(runs):
        drawn += _curves(HORIZON, (LIMIT, AT_LIMIT), runs)
    for topic, measures in TOPICS.items():
        drawn += _curves(topic, measures, runs)
    return drawn


def _differ(runs: Sequence[RunHistory]) -> bool:
    """Whether runs have different turn limits."""
    return len({tuple(run.series(LIMIT.artifact, LIMIT.metric)) for run in runs}) > 1


def _rewards(runs: Sequence[RunHistory]) -> list[Measure]:
    """The weighted reward, and each of its parts unweighted; a part within [0, 1] is plotted as a share."""
    parts = sorted({name for run in runs for name in run.metrics("rollout") if name.startswith("reward/")})
    measures = [Measure("credit", "reward", "weighted reward")]
    for part in parts:
        values = [value for run in runs for _, value in run.series("rollout", part)]
        within = all(0.0 <= value <= 1.0 for value in values)
        measures.append(Measure("rollout", part, part.removeprefix("reward/"), SHARE if within else ""))
    return measures


def _curves(topic: str, measures: Iterable[Measure], runs: Sequence[RunHistory]) -> list[Curve]:
    """The curves of the measures that any run has. A measure that is 0 everywhere is left out."""
    drawn: list[Curve] = []
    for measure in measures:
        found = [(run, run.series(measure.artifact, measure.metric)) for run in runs]
        if not any(value != 0.0 for _, points in found for _, value in points):
            continue
        name = f"{measure.artifact}/{measure.metric}"
        drawn += [
            Curve(name, measure.heading, run.variant, run.seed, points, measure.unit, topic)
            for run, points in found
            if points
        ]
    return drawn


def endings(runs: Sequence[RunHistory]) -> list[Endings]:
    """How training episodes ended: shares by iteration, per variant the mean over its runs that reached it."""
    found_endings = []
    for variant in dict.fromkeys(run.variant for run in runs):
        shares = {}
        for ending in Ending:
            values: dict[int, list[float]] = {}
            for run in runs:
                for number, value in run.series("rollout", f"ending/{ending}") if run.variant == variant else ():
                    values.setdefault(number, []).append(value)
            if any(any(found) for found in values.values()):
                shares[ending.value] = [(number, sum(found) / len(found)) for number, found in sorted(values.items())]
        found_endings.append(Endings(variant, shares))
    return found_endings


def alarms(runs: Sequence[RunHistory]) -> list[AlarmRaised]:
    """All alarms that were raised, run by run."""
    return [
        AlarmRaised(run.variant, run.seed, alarm.iteration, words, alarm.response)
        for run in runs
        for made in run.artifacts["health"]
        if made is not None
        for alarm in [read_health(made).alarm]
        for words in alarm.raised.values()
    ]


def work(runs: Sequence[RunHistory]) -> list[VariantWork]:
    """The work of each variant's runs, in episodes, turns and tokens."""
    return [
        _work(variant, [run for run in runs if run.variant == variant])
        for variant in dict.fromkeys(run.variant for run in runs)
    ]


def _work(variant: str, runs: Sequence[RunHistory]) -> VariantWork:
    rollouts = [made for run in runs for made in run.artifacts["rollout"] if made is not None]
    played = [_count(default_store().folder(made)) for made in rollouts]
    folders = [default_store().folder(made) for run in runs for made in run.evaluations]
    evaluated = [_count(folder / mode) for folder in folders for mode in (GREEDY, SAMPLED)]
    trained = [value for run in runs for _, value in run.series("policy", "tokens")]
    episodes, turns, replies, observations = (sum(column) for column in zip(*played, strict=True))
    return VariantWork(
        variant=variant,
        runs=len(runs),
        episodes=episodes,
        turns=turns,
        sampled_tokens=replies,
        read_tokens=observations,
        trained_tokens=round(sum(trained)),
        evaluation_tokens=sum(of_replies for _, _, of_replies, _ in evaluated),
    )


def _count(folder: Path) -> tuple[int, int, int, int]:
    """Episodes, turns, reply tokens and observation tokens of a folder of trajectories."""
    tokens = parquet.read_table(folder / TURNS_FILE, columns=["reply_tokens", "observation_tokens"])
    lengths = [compute.sum(compute.list_value_length(tokens[name])).as_py() or 0 for name in tokens.column_names]
    return parquet.read_metadata(folder / TRAJECTORIES_FILE).num_rows, len(tokens), lengths[0], lengths[1]


def _metrics(made: Reference | None) -> dict[str, float]:
    return {} if made is None else default_store().metrics(made)
