"""A suite: rules compared over several worlds at once, by the measures of rliable (Agarwal et al. 2021).

Scores x[w, n] are those of run n of a rule in world w, normalised so that 0 is the random policy and 1 the oracle. Over
the W worlds that every rule has been run in:

    interquartile mean            of all runs of all worlds, without the lowest and the highest quarter
    mean                          of the worlds' means
    optimality gap                mean over worlds of mean_n max(1 - x, 0): what is missing to the oracle
    probability of improvement    of a rule over another: mean over worlds of P(X > Y) + P(X = Y) / 2    (eq. 3)
    rank                          mean over worlds of the place by the mean of the runs, 1 the best; ties share places
    performance profile           F(t) = mean over worlds of the share of runs with x > t                (eq. 1)

Intervals are percentiles of a stratified bootstrap: runs are drawn again within each world, and the worlds are fixed.

*What differs*: rliable takes equally many runs everywhere. Here they may differ; only the interquartile mean, which is
of the pooled runs, then weighs a world by its runs. With few runs such intervals cover too little
(`docs/science/coverage.md`: 75 % of 95 with three), so no verdict follows from them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from turnwise.data.arrays import Numbers
from turnwise.seeding import generator
from turnwise.statistics.interval import Interval
from turnwise.statistics.seeds import CUT

Scores = Mapping[str, Mapping[str, Sequence[float]]]
"""By rule and world, the normalised score of each run."""
RESAMPLES, LEVEL = 5000, 0.95
THRESHOLDS = tuple(step / 20 for step in range(21))
"""Those of the performance profiles."""


@dataclass(frozen=True)
class RuleMeasures:
    """One rule over all worlds of a suite."""

    name: str
    interquartile_mean: Interval
    mean: Interval
    optimality_gap: Interval
    rank: Interval
    profile: list[tuple[float, Interval]]
    """(threshold, share of runs above it)."""


@dataclass(frozen=True)
class Suite:
    """The measures of several rules over the worlds that all of them have."""

    worlds: list[str]
    rules: list[RuleMeasures]
    improvement: list[tuple[str, str, Interval]]
    """By pair, the probability that a run of the first is better than one of the second."""


def common_worlds(scores: Scores) -> list[str]:
    """The worlds in which every rule has a run, in the order of the first rule."""
    first, *others = ([world for world, runs in by_world.items() if len(runs)] for by_world in scores.values())
    return [world for world in first if all(world in worlds for worlds in others)]


def measure_suite(scores: Scores) -> Suite:
    """Measure rules over the worlds that every one has been run in.

    Raises ValueError without a common world, and for a score that is not finite.
    """
    worlds = common_worlds(scores)
    if not worlds or not all(np.isfinite(scores[rule][world]).all() for rule in scores for world in worlds):
        raise ValueError(
            "rules must share a world, with finite scores; found "
            f"{ {rule: {world: list(runs) for world, runs in by_world.items()} for rule, by_world in scores.items()} }"
        )
    samples = {rule: _Sample.of(rule, {world: scores[rule][world] for world in worlds}) for rule in scores}
    ranks = _ranks([sample.once for sample in samples.values()])
    resample_ranks = _ranks([sample.resamples for sample in samples.values()])
    return Suite(
        worlds,
        [
            RuleMeasures(
                rule,
                sample.interval(_interquartile_mean),
                sample.interval(_mean),
                sample.interval(_optimality_gap),
                _percentiles(ranks[place], resample_ranks[place], sample.count),
                [(at, sample.interval(partial(_share_above, threshold=at))) for at in THRESHOLDS],
            )
            for place, (rule, sample) in enumerate(samples.items())
        ],
        [
            (
                one,
                other,
                _percentiles(
                    _improvement(samples[one].once, samples[other].once),
                    _improvement(samples[one].resamples, samples[other].resamples),
                    min(samples[one].count, samples[other].count),
                ),
            )
            for one, other in itertools.combinations(samples, 2)
        ],
    )


Runs = Sequence[Numbers]
"""By world, the scores of a rule's runs [samples, runs]."""


@dataclass(frozen=True)
class _Sample:
    """The runs of one rule: as they are, one sample, and drawn again within each world."""

    once: Runs
    resamples: Runs

    @classmethod
    def of(cls, rule: str, scores: Mapping[str, Sequence[float]]) -> _Sample:
        """The sample of a rule's scores by world."""
        once = [np.asarray(runs, dtype=np.float64)[None] for runs in scores.values()]
        resamples = [
            runs[0][generator(0, "suite", rule, world).integers(runs.size, size=(RESAMPLES, runs.size))]
            for world, runs in zip(scores, once, strict=True)
        ]
        return cls(once, resamples)

    @property
    def count(self) -> int:
        """How many runs there are in all worlds."""
        return sum(runs.size for runs in self.once)

    def interval(self, measure: Callable[[Runs], Numbers]) -> Interval:
        """The measure of the runs, with the percentiles of those of the samples."""
        return _percentiles(measure(self.once), measure(self.resamples), self.count)


def _percentiles(value: Numbers, resamples: Numbers, count: int) -> Interval:
    low, high = (float(np.quantile(resamples, (1 + side * LEVEL) / 2)) for side in (-1, 1))
    at = float(value[0])
    # Means of equal numbers differ by roundings.
    return Interval(at, min(low, at), max(high, at), "seeds", count, LEVEL, "percentile bootstrap")


def _interquartile_mean(runs: Runs) -> Numbers:
    pooled = np.sort(np.concatenate(runs, axis=1), axis=1)
    cut = int(CUT * pooled.shape[1])
    return np.asarray(pooled[:, cut : pooled.shape[1] - cut].mean(axis=1))


def _mean(runs: Runs) -> Numbers:
    return np.mean([world_runs.mean(axis=1) for world_runs in runs], axis=0)


def _optimality_gap(runs: Runs) -> Numbers:
    return _mean([np.maximum(1 - world_runs, 0.0) for world_runs in runs])


def _share_above(runs: Runs, threshold: float) -> Numbers:
    return _mean([(world_runs > threshold).astype(np.float64) for world_runs in runs])


def _improvement(first: Runs, second: Runs) -> Numbers:
    pairs = [(one[:, :, None], other[:, None, :]) for one, other in zip(first, second, strict=True)]
    return np.mean([((one > other) + (one == other) / 2).mean(axis=(1, 2)) for one, other in pairs], axis=0)


def _ranks(rules: Sequence[Runs]) -> list[Numbers]:
    """By rule, its mean place over the worlds, in each sample."""
    means = np.array([[world_runs.mean(axis=1) for world_runs in runs] for runs in rules])  # [rules, worlds, samples]
    above = (means[None] > means[:, None]).sum(axis=1)
    alike = (means[None] == means[:, None]).sum(axis=1)
    return list((above + (alike + 1) / 2).mean(axis=1))
