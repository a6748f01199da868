"""Verdicts: which variants differ from the warm start, and from each other.

There are two families of comparisons, each corrected by Holm's method: every variant against the SFT warm start, and
every pair of variants. A pair is distinguishable when its corrected p is below 1 minus the level; then the verdict is
"higher" or "lower", by the means. Everything else is "not distinguishable": this number of runs cannot tell them apart,
which does not mean that they are alike. With one seed nothing is decided.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from turnwise.statistics.curves import Points, Reached, area, reached
from turnwise.statistics.interval import LEVEL, Interval
from turnwise.statistics.pairs import Difference, difference, difference_of_policies, difference_of_runs
from turnwise.statistics.power import smallest_found
from turnwise.statistics.results import ReferencePoints, Results, common_tasks, normalised
from turnwise.statistics.seeds import interquartile_mean_over_seeds, performance_profile, student_over_seeds
from turnwise.statistics.significance import effect_size, exact_p, holm, probability_of_improvement, smallest_exact_p
from turnwise.statistics.tasks import over_tasks

Verdict = Literal["higher", "lower", "not distinguishable", "one seed: not decided"]
SHARE = (0.0, 1.0)
THRESHOLDS = tuple(step / 20 for step in range(20))
"""The thresholds of the performance profiles."""


@dataclass(frozen=True)
class Comparison:
    """The comparison of two variants, or of a variant with the warm start."""

    first: str
    second: str
    difference: Interval
    """First minus second, over seeds and tasks. Its bounds are those of this pair alone, before any correction."""
    p: float | None
    """Two-sided p of the difference, before any correction; None where there is none."""
    corrected: float | None
    """p after Holm's method over the family: the verdict follows from it."""
    verdict: Verdict
    """Whether the first is higher or lower than the second."""
    paired: bool
    """Whether both have the same seeds, and are compared run by run."""
    effect: float | None = None
    """Hedges' g: the difference divided by the deviation of the runs."""
    improvement: float | None = None
    """The probability that a run of the first is higher than a run of the second."""
    exact: float | None = None
    """p of the exact test over runs, which assumes no distribution; before any correction."""
    smallest: float | None = None
    """The smallest p that the exact test can give with these numbers of runs."""


@dataclass(frozen=True)
class VariantResult:
    """The results of one variant, and how they compare with its reference points."""

    name: str
    mean: Interval
    interquartile_mean: Interval | None
    """None where policies are compared over tasks."""
    normalised: Interval | None
    """The mean on the scale from the random policy (0) to the oracle (1); None where one of them is missing, or the
    oracle is no better."""
    gain: Comparison | None
    """The comparison with the warm start; None without one, or with fewer than two tasks in common."""


@dataclass(frozen=True)
class Learning:
    """The learning curves of one variant in numbers, by the same measure on the validation task set."""

    name: str
    area: Interval | None
    """The area under the learning curve divided by its length, which is the mean over training; None where no curve
    has two points."""
    reached: Reached
    """When its runs reached the success threshold, in iterations."""


@dataclass(frozen=True)
class Judgement:
    """The statistical comparison of a set of variants, by one measure with one number per episode."""

    measure: str
    """The name of the measure, as in the table's heading."""
    standings: list[VariantResult]
    """One entry per variant."""
    pairs: list[Comparison]
    """One entry per pair of variants."""
    level: float
    """The confidence level of all intervals and verdicts."""
    notes: list[str]
    """Sentences on how the verdicts were reached."""
    learning: list[Learning] = field(default_factory=list)
    """One entry per variant; empty where there are no learning curves."""
    profiles: dict[str, list[tuple[float, Interval]]] = field(default_factory=dict)
    """By variant: (threshold, share of tasks and runs above it); empty where the measure is no share."""

    @property
    def gains(self) -> list[Comparison]:
        """The comparisons with the warm start, of the variants that have one."""
        return [standing.gain for standing in self.standings if standing.gain is not None]

    @property
    def comparisons(self) -> list[Comparison]:
        """All comparisons: gains over the warm start first, then pairs of variants."""
        return [*self.gains, *self.pairs]


def judge(
    measure: str,
    variants: Mapping[str, Results],
    *,
    frames: Mapping[str, ReferencePoints] | None = None,
    curves: Mapping[str, Sequence[Points]] | None = None,
    stated: float = 0.8,
    share: bool = True,
    policies: bool = False,
) -> Judgement:
    """Compare every variant with its warm start, and every pair of variants.

    `frames` has the reference points and `curves` the learning curves by variant, one curve per run over iterations; of
    a run that was ended early, with its last value carried forward (`turnwise.statistics.curves`).
    `stated` is the success threshold of the learning curves. `share` says that the measure lies between 0 and 1.
    `policies` says that each variant is one policy with a single run, such as a published model: then intervals and
    verdicts are over tasks.
    """
    within = SHARE if share else (float("-inf"), float("inf"))
    reference_points = {name: (frames or {}).get(name, ReferencePoints()) for name in variants}
    uncorrected_gains = [gain_over(name, variants[name], frame.warm_start) for name, frame in reference_points.items()]
    gains = corrected_by_holm([gain for gain in uncorrected_gains if gain is not None])
    gains_by_variant = {gain.first: gain for gain in gains}
    standings = []
    profiles: dict[str, list[tuple[float, Interval]]] = {}
    for name, results in variants.items():
        frame = reference_points[name]
        if share and results.tasks:
            above = performance_profile(results.table(results.tasks), THRESHOLDS)
            profiles[name] = list(zip(THRESHOLDS, above, strict=True))
        means = list(results.means.values())
        if policies:
            only = list(results.table(results.tasks).mean(axis=0))
            mean = over_tasks(only, seed=0, proportion=share)
        else:
            mean = student_over_seeds(means, within=within)
        standings.append(
            VariantResult(
                name=name,
                mean=mean,
                interquartile_mean=(None if policies else interquartile_mean_over_seeds(means, within=within)),
                normalised=(
                    None
                    if frame.random is None or frame.oracle is None
                    else normalised(mean, frame.random, frame.oracle)
                ),
                gain=gains_by_variant.get(name),
            )
        )
    uncorrected_pairs = [
        compare(one, variants[one], other, variants[other], policies=policies)
        for one, other in itertools.combinations(variants, 2)
    ]
    pairs = corrected_by_holm(uncorrected_pairs)
    return Judgement(
        measure=measure,
        standings=standings,
        pairs=pairs,
        level=LEVEL,
        notes=_notes(gains, pairs),
        learning=[_learning(name, run_curves, stated, within) for name, run_curves in (curves or {}).items()],
        profiles=profiles,
    )


def compare(
    first: str, first_results: Results, second: str, second_results: Results, *, policies: bool = False
) -> Comparison:
    """The comparison of one pair, run by run where both have the same seeds, before any correction.

    Where they have fewer than two tasks in common, the means of runs are compared, and the difference is over seeds
    alone. `policies`: each is one policy, and the difference is over tasks.
    """
    estimate, paired, means = compared(first_results, second_results, policies)
    several = min(map(len, means)) > 1
    return replace(
        _comparison(first, second, estimate, paired),
        effect=effect_size(*means),
        improvement=probability_of_improvement(*means) if several else None,
        exact=exact_p(*means, paired=paired) if several else None,
        smallest=smallest_exact_p(*map(len, means), paired=paired) if several else None,
    )


def smallest_decidable(first: Results, second: Results, *, significance: float, policies: bool = False) -> float | None:
    """The smallest difference that these numbers of runs and tasks find with a probability of 80 %.

    From the spread that the results show (`turnwise.statistics.power`). None where that cannot be estimated, as with
    one seed. `significance` is the level of the test, after any correction.
    """
    spread = compared(first, second, policies)[0].spread
    return None if spread is None else smallest_found(float(spread.error), float(spread.freedom), significance)


def compared(
    first: Results, second: Results, policies: bool
) -> tuple[Difference, bool, tuple[list[float], list[float]]]:
    """The difference, whether it is by pairs of runs, and the means of the runs of both."""
    tasks = common_tasks(first, second)
    seeds = sorted(first.runs)
    paired = seeds == sorted(second.runs) and len(tasks) > 1
    if len(tasks) < 2:
        means = (list(first.means.values()), list(second.means.values()))
        return difference_of_runs(*means), False, means
    one, other = first.table(tasks, seeds), second.table(tasks, seeds if paired else None)
    means = (one.mean(axis=1).tolist(), other.mean(axis=1).tolist())
    if policies:
        return difference_of_policies(one.mean(axis=0), other.mean(axis=0)), True, means
    return difference(one, other, paired=paired), paired, means


def gain_over(name: str, results: Results, warm_start: Results | None) -> Comparison | None:
    """The comparison of a variant with its warm start, before any correction.

    The warm start is the same policy for every seed, so only the variant's own runs vary. None without a warm start, or
    with fewer than two tasks in common.
    """
    tasks = [] if warm_start is None else common_tasks(results, warm_start)
    if warm_start is None or len(tasks) < 2:
        return None
    estimate = difference(results.table(tasks), warm_start.table(tasks), paired=True)
    return _comparison(name, "warm start", estimate, True)


def _learning(name: str, curves: Sequence[Points], stated: float, within: tuple[float, float]) -> Learning:
    areas = [run_area for run_area in map(area, curves) if run_area is not None]
    return Learning(name, student_over_seeds(areas, within=within) if areas else None, reached(curves, stated))


def _comparison(first: str, second: str, estimate: Difference, paired: bool) -> Comparison:
    return Comparison(
        first, second, estimate.interval, estimate.p, estimate.p, _verdict(estimate.interval, estimate.p), paired
    )


def corrected_by_holm(family: Sequence[Comparison]) -> list[Comparison]:
    """A family of comparisons with p corrected by Holm's method, and the verdicts that follow from it."""
    corrected = holm([each.p for each in family])
    return [
        replace(each, corrected=p, verdict=_verdict(each.difference, p))
        for each, p in zip(family, corrected, strict=True)
    ]


def _verdict(interval: Interval, p: float | None) -> Verdict:
    if interval.count == 1:
        return "one seed: not decided"
    if p is None or p >= 1 - LEVEL:
        return "not distinguishable"
    return "higher" if interval.value > 0 else "lower"


def _notes(gains: Sequence[Comparison], pairs: Sequence[Comparison]) -> list[str]:
    notes = []
    for family, what in ((gains, "gains over the warm start"), (pairs, "pairs of variants")):
        count = sum(each.p is not None for each in family)
        if count > 1:
            notes.append(
                f"The {count} {what} are corrected together by Holm's method: the chance that one or more is "
                f"called different though all are alike is {100 * (1 - LEVEL):g} % at most, and about twice that with "
                "three seeds (docs/science/coverage.md)."
            )
    smallest = sorted({each.smallest for each in pairs if each.smallest is not None})
    if smallest and smallest[-1] >= 1 - LEVEL:
        notes.append(
            f"With so few runs a test that assumes nothing cannot go below p = {smallest[-1]:.2g}; the verdicts assume "
            "that runs of a variant vary about their mean as Student's t does."
        )
    if any(each.difference.count == 1 for each in [*gains, *pairs]):
        notes.append("Where a variant has one seed there is no interval and no verdict.")
    return notes
