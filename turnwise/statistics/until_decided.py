"""Seeds until comparisons are decided: what each look at the runs came to, and which runs the next look needs.

A race is replayed from all results so far, so that a run that was killed goes on as it would have gone. At look k, with
n_k seeds, a comparison of the difference d has two hypotheses, each with a sequential p (`sequential`):

    d = 0          two-sided Student's t           rejected: it is decided, higher or lower
    |d| >= w       the larger of the one-sided     rejected: a difference as large as w, what is worth having, is
                   t tests of -w and w             ruled out (Schuirmann 1987)

Holm's method over each family, the gains and the pairs, keeps the chance of any false "decided" within the level, and
likewise that of any false "ruled out", at all looks together. A comparison ends when one of both is rejected, and is
reported as it was then. A variant leaves the race when each of its comparisons that count has ended.

The bounds hold whatever ends the seeds. So another metric, or the same at a written budget, whose looks end with those
seeds has verdicts by the same bounds.

Tasks are the same at every look, so that looks resemble each other more than the bounds assume, which errs less.
`docs/science/sequential.md` has what this rule errs, finds and saves.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from turnwise.config.schema import SeedsUntil
from turnwise.statistics.interval import LEVEL, Interval
from turnwise.statistics.pairs import Difference, difference
from turnwise.statistics.power import seeds_to_decide
from turnwise.statistics.results import Results, common_tasks
from turnwise.statistics.sequential import looks_until, nominal_levels, repeated_interval, sequential_p
from turnwise.statistics.significance import equivalence_p, holm
from turnwise.statistics.verdict import Comparison, Judgement, compare, compared, corrected_by_holm, gain_over

Runs = Mapping[str, Mapping[int, Mapping[str, float]]]
"""By variant and seed, in order, the mean of each task; a run that a fault has left out has no task."""
Decision = Literal["decided", "ruled out", "open"]
WARM_START = "warm start"
WORTH_OF_SHARES = 0.05
"""The difference worth having between shares, where none is configured."""


def worth_having(rule: SeedsUntil, share: bool) -> float:
    """The difference that is worth having in a metric, by a rule; 0 for none. `share`: it lies between 0 and 1."""
    return rule.worth_having if rule.worth_having is not None else WORTH_OF_SHARES if share else 0.0


@dataclass(frozen=True)
class SettledComparison:
    """How seeds ended a comparison, or left it open."""

    first: str
    second: str
    decision: Decision
    seeds: int
    """How many seeds its last look was at."""
    further: int | None = None
    """Of an open one, how many more seeds find the difference worth having, or where none is configured the one that
    was seen, with a probability of 80 % on the same tasks; None where a thousand are too few, or nothing varies."""
    hours: float | None = None
    """What the further runs would take, one after the other; None where that was not measured."""

    @property
    def variants(self) -> list[str]:
        """Those that would need further runs."""
        return [name for name in (self.first, self.second) if name != WARM_START]


@dataclass(frozen=True)
class SeedRace:
    """What the looks came to."""

    at_most: int
    worth: float
    """The difference worth having; 0 for none."""
    comparisons: list[SettledComparison]
    """Those that seeds were added for."""

    @property
    def open(self) -> list[SettledComparison]:
        """The comparisons that even the last look has left open."""
        return [each for each in self.comparisons if each.decision == "open"]

    def with_hours(self, run_hours: Mapping[str, float]) -> SeedRace:
        """With what the further runs would take, by the hours that a run of each variant has taken."""

        def hours(each: SettledComparison) -> float | None:
            return None if each.further is None else each.further * sum(run_hours[name] for name in each.variants)

        return replace(self, comparisons=[replace(each, hours=hours(each)) for each in self.comparisons])


class _Watched:
    """A comparison on its way through the looks."""

    def __init__(
        self, first: str, second: str, counts: bool, looks: Sequence[int], warm_start: Results | None = None
    ) -> None:
        """`counts`: seeds are added for it. `warm_start`: what a gain is over."""
        self.first, self.second, self.counts = first, second, counts
        self.seeds = 0
        """How many there were at its last look; 0 before the first."""
        self.ended = False
        self.difference_p_values, self.worth_p_values = [1.0] * len(looks), [1.0] * len(looks)
        """The two-sided p of each look, of both hypotheses; 1 where there was none."""
        self._looks, self._warm_start = looks, warm_start
        self._sides: list[Results] = []
        self._estimate: Difference | None = None

    def look(self, place: int, runs: Runs, worth: float) -> None:
        """Take the look at this place, at the runs that both sides have, paired by seed."""
        self.seeds = self._looks[place]
        sides = [runs[name] for name in (self.first, self.second) if name in runs]
        seeds = [seed for seed in range(1, self.seeds + 1) if all(side[seed] for side in sides)]
        if not seeds:  # a fault has left all of them out
            return
        self._sides = [Results({seed: side[seed] for seed in seeds}) for side in sides]
        self._estimate = _difference(self._sides, self._warm_start)
        if self._estimate is not None:
            self.difference_p_values[place] = 1.0 if self._estimate.p is None else self._estimate.p
            self.worth_p_values[place] = _worth_p_value(self._estimate, worth)

    def sequential(self, p_values: Sequence[float]) -> float:
        """The sequential p of the looks so far."""
        return sequential_p(p_values, self._looks, self._looks[-1])

    def comparison(self) -> Comparison | None:
        """The comparison as it stood at its last look, before any correction; None before the first."""
        if self._estimate is None:
            return None
        comparison = (
            compare(self.first, self._sides[0], self.second, self._sides[1])
            if len(self._sides) == 2
            else gain_over(self.first, self._sides[0], self._warm_start)
        )
        assert comparison is not None, "a difference was found"
        nominal = nominal_levels(tuple(self._looks), self._looks[-1], 1 - LEVEL)[self._looks.index(self.seeds)]
        return replace(
            comparison,
            difference=_repeated_interval(self._estimate, nominal),
            p=self.sequential(self.difference_p_values),
        )

    def further(self, worth: float, level: float) -> int | None:
        """How many more seeds decide it: see `SettledComparison`. `level`: that of the correction's first step."""
        if self._estimate is None or self._estimate.spread is None:
            return None
        sample, error = self._estimate.interval.sample, float(self._estimate.spread.error)
        deviation = float(np.std(sample, ddof=1)) if len(sample) > 1 else 0.0
        wanted = worth or abs(self._estimate.interval.value)
        if not (deviation and wanted):
            return None
        task_error = math.sqrt(max(0.0, error**2 - deviation**2 / len(sample)))
        needed = seeds_to_decide(wanted, deviation, level, beside=task_error)
        return None if needed is None else max(1, needed - self.seeds)


class Looks:
    """The looks so far: which runs the next one needs, and each comparison as it stood at the last look at it."""

    def __init__(self, runs: Runs, warm_starts: Mapping[str, Results], rule: SeedsUntil, *, worth: float = 0.0) -> None:
        """Look at the runs so far by a rule, from its first look on.

        `runs` names every variant, also before its first run. `warm_starts` has what the gain of a variant is over, by
        name; a variant without has none. `worth` is the difference worth having, 0 for none.
        """
        self.wanted: list[tuple[str, int]] = []
        """Variant and seed of the runs that the next look needs, seed by seed; empty where the race is over."""
        self._rule, self._worth = rule, worth
        looks = looks_until(rule.first, rule.step, rule.at_most)
        gains = [
            _Watched(name, WARM_START, rule.compare != "pairs", looks, warm_starts[name])
            for name in runs
            if name in warm_starts
        ]
        pairs = [_Watched(*names, rule.compare != "warm-start", looks) for names in itertools.combinations(runs, 2)]
        self._gains, self._pairs = gains, pairs
        for place, seeds in enumerate(looks):
            self._look(place, seeds, runs)

    @property
    def race(self) -> SeedRace:
        """How seeds ended the comparisons that they were added for."""
        settled_comparisons = [
            SettledComparison(
                *(each.first, each.second, decision, each.seeds),
                each.further(self._worth, (1 - LEVEL) / len(family)) if decision == "open" else None,
            )
            for family in (self._gains, self._pairs)
            for each, decision in zip(family, _decisions(family), strict=True)
            if each.counts and each.seeds
        ]
        return SeedRace(self._rule.at_most, self._worth, settled_comparisons)

    @property
    def gains(self) -> list[Comparison]:
        """The comparisons with the warm start, corrected together."""
        return self._correct(self._gains)

    @property
    def pairs(self) -> list[Comparison]:
        """The comparisons of pairs, corrected together."""
        return self._correct(self._pairs)

    def _look(self, place: int, seeds: int, runs: Runs) -> None:
        every = [*self._gains, *self._pairs]
        racing = {name for each in every if each.counts and not each.ended for name in (each.first, each.second)}
        look_runs = [(name, seed) for seed in range(1, seeds + 1) for name in runs if name in racing]
        self.wanted = self.wanted or [(name, seed) for name, seed in look_runs if seed not in runs[name]]
        complete = {WARM_START, *(name for name in runs if all(seed in runs[name] for seed in range(1, seeds + 1)))}
        for each in every:
            if not each.ended and {each.first, each.second} <= complete:
                each.look(place, runs, self._worth)
        for family in (self._gains, self._pairs):
            for each, decision in zip(family, _decisions(family), strict=True):
                each.ended = decision != "open"

    def _correct(self, family: Sequence[_Watched]) -> list[Comparison]:
        comparisons = [each.comparison() for each in family]
        return corrected_by_holm([each for each in comparisons if each is not None])


def with_looks(judgement: Judgement, looks: Looks) -> Judgement:
    """A judgement whose verdicts are those of the looks; means, curves and profiles stay over all seeds."""
    gains = {gain.first: gain for gain in looks.gains}
    return replace(
        judgement,
        standings=[replace(each, gain=gains.get(each.name)) for each in judgement.standings],
        pairs=looks.pairs,
        notes=[
            *judgement.notes,
            f"Seeds were added until comparisons were decided, at most {looks.race.at_most}: intervals and p values "
            "hold at all looks together (docs/science/sequential.md), and are those of the last look at a comparison. "
            "Means are over all seeds of a variant.",
        ],
    )


def _difference(sides: Sequence[Results], warm_start: Results | None) -> Difference | None:
    """The difference of two variants, or of one and the warm start; None where these have too few tasks in common."""
    if len(sides) == 2:
        return compared(sides[0], sides[1], False)[0]
    tasks = [] if warm_start is None else common_tasks(sides[0], warm_start)
    if warm_start is None or len(tasks) < 2:
        return None
    return difference(sides[0].table(tasks), warm_start.table(tasks), paired=True)


def _repeated_interval(estimate: Difference, nominal: float) -> Interval:
    """The repeated interval of a difference, which holds at all looks together."""
    if estimate.spread is None:
        return estimate.interval
    error, freedom = float(estimate.spread.error), float(estimate.spread.freedom)
    low, high = repeated_interval(estimate.interval.value, error, freedom, nominal)
    return replace(estimate.interval, low=low, high=high, method="Student's t, repeated")


def _worth_p_value(estimate: Difference, worth: float) -> float:
    """Twice the larger p of the one-sided tests that the difference is as far from 0 as is worth having; at most 1."""
    if estimate.spread is None or worth == 0.0:
        return 1.0
    error, freedom = float(estimate.spread.error), float(estimate.spread.freedom)
    return min(1.0, 2 * equivalence_p(estimate.interval.value, error, freedom, worth))


def _decisions(family: Sequence[_Watched]) -> list[Decision]:
    """What the looks so far say of each comparison of a family."""
    difference_p_values = holm([each.sequential(each.difference_p_values) for each in family])
    # One side alone can err, at half the level of both.
    worth_p_values = holm([each.sequential(each.worth_p_values) / 2 for each in family])

    def decision(p: float | None, worth_p: float | None) -> Decision:
        if p is not None and p < 1 - LEVEL:
            return "decided"
        return "ruled out" if worth_p is not None and worth_p < 1 - LEVEL else "open"

    return [decision(*each) for each in zip(difference_p_values, worth_p_values, strict=True)]
