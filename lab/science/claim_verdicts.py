"""Verdicts on claims from the runs of ablations, by one rule for all claims.

Runs of two variants with the same seed draw the same tasks, so tests are paired by seed. A run that a guard or an alarm
has ended counts as any other, with its test and with the last value of its curve; the seed of a run that a fault has
left out is missing from the pairs. The tests:

    above, below        Student's t on the paired differences (Student 1908)
    varies less than    Pitman and Morgan's test for two variances of pairs: the correlation of sum and difference
    rises, falls        Student's t on the last value of a curve minus its first
    falls before        Student's t on the iterations between two curves' falls, over seeds in which both fall

Where seeds were added until comparisons were decided, a relation is tested at each look, and its p is the sequential p
of all of them (`turnwise.statistics.sequential`). The looks spend the level whatever ended the race, so this holds for
every measure, also for one that decided nothing there. The interval is the repeated one of the last look.

Where the page states beforehand which difference is worth having, a second test asks whether the difference is as large
as that: Student's t on the differences minus it. Of these two hypotheses, no difference and as much as is worth having,
at most one is true, and so the two-sided p values of all relations of a page are corrected together by Shaffer's method
(1986; Holm's where there is no second test). A relation that several claims need is tested once. A relation

    holds           if its corrected p is below 0.05 and the estimate lies on the claimed side
    is reversed     if its corrected p is below 0.05 and the estimate lies on the other side
    is ruled out    if it does not hold and the corrected p of the second test is below 0.05
    is open         otherwise

A claim **held** if all its relations hold, is **not held** if one is reversed, **too small to matter** if one is
ruled out, is **not run** if an ablation that it needs is missing, and is **not decided at this scale** otherwise. So a
claim needs evidence, and so does its opposite.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Literal

import numpy as np

from lab.science.claims import Claim, ClaimsPage, Relationship
from turnwise.results.report_data import ReportData
from turnwise.statistics import Interval, student_over_seeds
from turnwise.statistics.sequential import nominal_levels, sequential_p
from turnwise.statistics.significance import shaffer

LEVEL = 0.05
FALLEN = 0.5
"""The fraction of its first value below which a curve has fallen."""


Standing = Literal["holds", "reversed", "too small", "open"]
"""Of a relation, once it was tested."""


class Verdict(StrEnum):
    """The verdict on a claim."""

    HELD = "held"
    NOT_HELD = "not held"
    TOO_SMALL = "too small to matter"
    NOT_DECIDED = "not decided at this scale"
    NOT_RUN = "not run"


@dataclass(frozen=True)
class Evidence:
    """The result of the test of one relation."""

    relationship: Relationship
    estimate: Interval | None
    """The mean difference between the variants, or between the end and the beginning of a curve; for `varies less than`
    the difference of the standard deviations, without an interval; for `falls before` the iterations between the falls.
    None for `falls before` if both curves fall in fewer than two seeds, and where faults have left fewer than two."""
    p: float
    """Two-sided p-value of this relation alone."""
    corrected: float
    """That p-value corrected over all tests of the page."""
    as_claimed: bool
    """Whether the estimate lies on the claimed side."""
    compared: tuple[float, float] | None = None
    """What the estimate is the difference of: the variant's mean and the other's, or that of the ends and that of the
    beginnings; for `varies less than` the deviations, for `falls before` the iterations of the falls, the later first.
    None where there is no estimate."""
    worth_having: float | None = None
    """The smallest difference that matters, where the page states one for the measure."""
    corrected_of_as_much: float | None = None
    """The corrected p-value of a difference as large as that; None where none is stated."""

    @property
    def holds(self) -> bool:
        """Whether the relation is shown: on the claimed side, with a corrected p below `LEVEL`."""
        return self.as_claimed and self.corrected < LEVEL

    @property
    def reversed(self) -> bool:
        """Whether the opposite is shown: on the other side, with a corrected p below `LEVEL`."""
        return not self.as_claimed and self.corrected < LEVEL

    @property
    def ruled_out(self) -> bool:
        """Whether it does not hold, and a difference that is worth having is ruled out."""
        return not self.holds and self.corrected_of_as_much is not None and self.corrected_of_as_much < LEVEL

    @property
    def standing(self) -> Standing:
        """Which of these it is."""
        if self.holds:
            return "holds"
        if self.reversed:
            return "reversed"
        return "too small" if self.ruled_out else "open"


@dataclass(frozen=True)
class DecidedClaim:
    """A claim with its verdict and evidence."""

    claim: Claim
    verdict: Verdict
    evidence: tuple[Evidence, ...]


def decide(
    page: ClaimsPage, reports: Mapping[str, ReportData], looks: Mapping[str, Sequence[int]] | None = None
) -> list[DecidedClaim]:
    """The decision for each claim. `reports` has the report data of the ablations that were run, by name, and `looks`
    the numbers of seeds at which was looked, up to the most, of those whose seeds were added until decided.

    Raises ValueError for a variant or a measure that an ablation does not have, for two ablations with other seeds or
    another test task set, or with looks, and for fewer than two seeds in common where no fault has left out the others.
    """
    decidable = [
        claim for claim in page.claims if all(name in reports for each in claim.relations for name in each.ablations)
    ]
    relationships = list(dict.fromkeys(each for claim in decidable for each in claim.relations))
    worth_having = [page.worth_having(each) for each in relationships]
    tests, worth_having_ps = [], []
    for each, worth in zip(relationships, worth_having, strict=True):
        pairs = _pairs(each, reports[each.ablation], reports[each.other or each.ablation], looks or {})
        test, worth_having_p = _at_looks(each, pairs, worth, (looks or {}).get(each.ablation, ()))
        tests.append(test)
        worth_having_ps.append(worth_having_p)
    corrected = shaffer([[test.p, *more] for test, more in zip(tests, worth_having_ps, strict=True)])
    evidence = {
        each: Evidence(each, test.estimate, test.p, ps[0], test.as_claimed, test.compared, worth, *ps[1:])
        for each, test, worth, ps in zip(relationships, tests, worth_having, corrected, strict=True)
    }
    return [_decision(claim, evidence) for claim in page.claims]


def _decision(claim: Claim, evidence: Mapping[Relationship, Evidence]) -> DecidedClaim:
    if any(each not in evidence for each in claim.relations):
        return DecidedClaim(claim, Verdict.NOT_RUN, ())
    own_evidence = tuple(evidence[each] for each in claim.relations)
    if any(each.reversed for each in own_evidence):
        return DecidedClaim(claim, Verdict.NOT_HELD, own_evidence)
    if any(each.ruled_out for each in own_evidence):
        return DecidedClaim(claim, Verdict.TOO_SMALL, own_evidence)
    return DecidedClaim(
        claim, Verdict.HELD if all(each.holds for each in own_evidence) else Verdict.NOT_DECIDED, own_evidence
    )


@dataclass(frozen=True)
class _Test:
    """The test of one relation, before the correction; see `Evidence`."""

    estimate: Interval | None
    p: float
    as_claimed: bool
    compared: tuple[float, float] | None


NO_TEST = _Test(None, 1.0, True, None)
"""Of a relation for which too few runs can be tested."""


Pairs = Mapping[int, tuple[float, float]]
"""By seed, what is compared: the variant's value and the other's, or a curve's last and its first."""


def _pairs(
    relationship: Relationship, report: ReportData, counterpart: ReportData, looks: Mapping[str, Sequence[int]]
) -> Pairs:
    """`report` has the runs of `relationship.variant`, `counterpart` those of `relationship.than`.

    Empty where a fault has left out every run of a variant.
    """
    variant, than = relationship.variant, relationship.than
    if _is_left_out(report, variant) or _is_left_out(counterpart, than):
        return {}
    if than is None:
        if relationship.later is not None:
            return _falls(report, variant, relationship.measure, relationship.later)
        return _ends(report, variant, relationship.measure)
    _require_the_same_tasks(relationship, report, counterpart, looks)
    own, other = _finals(report, variant, relationship.measure), _finals(counterpart, than, relationship.measure)
    if not (_has_faults(report) or _has_faults(counterpart) or relationship.ablation in looks):
        if len(own) != len(other) or len(own) < 2:
            raise ValueError(
                f"{relationship.sentence}: seeds must be in common, two at least; found {len(own)} and {len(other)}"
            )
        return dict(enumerate(zip(own, other, strict=True), start=1))
    by_seed, counterparts = _by_seed(report, variant, own), _by_seed(counterpart, than, other)
    return {seed: (value, counterparts[seed]) for seed, value in by_seed.items() if seed in counterparts}


def _at_looks(
    relationship: Relationship, pairs: Pairs, worth_having: float | None, looks: Sequence[int]
) -> tuple[_Test, list[float]]:
    """The test of a relation, and the p of a difference as large as is worth having; see `_p_of_worth_having`.

    With `looks`, both p are sequential: of all looks that were taken, each at the pairs of so many seeds.
    """
    past_looks = [seeds for seeds in looks if seeds <= max(pairs, default=0)]
    if not past_looks:
        test = _test(relationship, pairs)
        return test, _p_of_worth_having(relationship, test, worth_having)
    tests = [_test(relationship, {seed: pairs[seed] for seed in pairs if seed <= seeds}) for seeds in past_looks]
    worth_having_ps = [_p_of_worth_having(relationship, test, worth_having) or [1.0] for test in tests]
    last, at_most = tests[-1], looks[-1]
    estimate = last.estimate
    if estimate is not None and estimate.low is not None:
        nominal = nominal_levels(tuple(past_looks), at_most, LEVEL)[-1]
        estimate = replace(student_over_seeds(estimate.sample, level=1 - nominal), level=estimate.level)
    p = sequential_p([test.p for test in tests], past_looks, at_most)
    worth_having_p = (
        [sequential_p([each[0] for each in worth_having_ps], past_looks, at_most)] if worth_having is not None else []
    )
    return replace(last, estimate=estimate, p=p), worth_having_p


def _test(relationship: Relationship, pairs: Pairs) -> _Test:
    if len(pairs) < 2:
        return NO_TEST
    own, other = np.array(list(pairs.values())).T
    if relationship.relation == "varies less than":
        return _deviations(own, other)
    return _means(own, other, relationship.upwards)


def _require_the_same_tasks(
    relationship: Relationship, report: ReportData, counterpart: ReportData, looks: Mapping[str, Sequence[int]]
) -> None:
    """Raise ValueError if two ablations cannot be paired by seed: other seeds, another test task set, or looks."""
    if relationship.other is not None and any(name in looks for name in relationship.ablations):
        raise ValueError(
            f"{relationship.sentence}: between two ablations seeds must be listed, not added until decided; found "
            f"looks in {' and '.join(name for name in relationship.ablations if name in looks)}"
        )
    for what, own, other in (
        ("seeds", *(_assigned_seeds(each) for each in (report, counterpart))),
        ("test task set", *(dict(each.lineage).get("test task set") for each in (report, counterpart))),
    ):
        if own != other:
            raise ValueError(f"{relationship.sentence}: the {what} must be the same in both; found {own} and {other}")


def _assigned_seeds(report: ReportData) -> set[int]:
    """The seeds that an ablation was given, also those of runs that a fault has left out."""
    left_out = [] if report.outcomes is None else report.outcomes.left_out
    return {curve.seed for curve in report.curves} | {run.seed for run in left_out}


def _means(own: np.ndarray, other: np.ndarray, upwards: bool) -> _Test:
    estimate = student_over_seeds([float(each) for each in own - other])
    means = (float(own.mean()), float(other.mean()))
    return _Test(estimate, _p_of_mean(own - other), (estimate.value > 0) == upwards, means)


def _p_of_mean(differences: np.ndarray) -> float:
    """The two-sided p of a mean of zero."""
    from scipy import stats

    if np.ptp(differences) == 0:  # t is undefined without spread: a two-sided sign test instead, since all seeds agree
        return 1.0 if differences[0] == 0 else float(2.0 ** (1 - len(differences)))
    return float(stats.ttest_1samp(differences, 0.0).pvalue)


def _p_of_worth_having(relationship: Relationship, test: _Test, worth_having: float | None) -> list[float]:
    """The two-sided p of a mean that lies as far on the claimed side as is worth having; 1 where the estimate does.

    Empty where nothing is stated to be worth having.
    """
    if worth_having is None or test.estimate is None:
        return []
    differences = np.array(test.estimate.sample)
    claimed = differences if relationship.upwards else -differences
    return [_p_of_mean(claimed - worth_having) if claimed.mean() < worth_having else 1.0]


def _deviations(own: np.ndarray, other: np.ndarray) -> _Test:
    from scipy import stats

    deviations = (float(own.std(ddof=1)), float(other.std(ddof=1)))
    difference = deviations[0] - deviations[1]
    total, apart = own + other, own - other
    is_defined = len(own) > 2 and np.ptp(total) > 0 and np.ptp(apart) > 0
    p = float(stats.pearsonr(total, apart).pvalue) if is_defined else 1.0
    return _Test(Interval(difference, None, None, "seeds", len(own)), p, difference < 0, deviations)


def _falls(report: ReportData, variant: str, earlier: str, later: str) -> Pairs:
    """The iterations at which two curves fall, the later one's first, of the seeds in which both fall."""
    first, last = (_first_falls(report, variant, each) for each in (earlier, later))
    return {seed: (last[seed], first[seed]) for seed in first if seed in last}


def _first_falls(report: ReportData, variant: str, measure: str) -> dict[int, int]:
    """By seed, the first iteration at which a curve has fallen; without those that never do."""
    return {
        seed: falls[0]
        for seed, points in _curves(report, variant, measure).items()
        if (falls := [iteration for iteration, value in points if value < FALLEN * points[0][1]])
    }


def _has_faults(report: ReportData) -> bool:
    """Whether a fault has left out a run of an ablation."""
    return report.outcomes is not None and bool(report.outcomes.left_out)


def _is_left_out(report: ReportData, variant: str | None) -> bool:
    """Whether a fault has left out every run of a variant."""
    left_out = [] if report.outcomes is None else [run for run in report.outcomes.left_out if run.variant == variant]
    return bool(left_out) and not any(curve.variant == variant for curve in report.curves)


def _by_seed(report: ReportData, variant: str, values: Sequence[float]) -> dict[int, float]:
    """The values of a variant's runs by seed, which its curves name in the same order."""
    seeds = dict.fromkeys(curve.seed for curve in report.curves if curve.variant == variant)
    return dict(zip(seeds, values, strict=True))


def _finals(report: ReportData, variant: str, measure: str) -> Sequence[float]:
    """One value per seed: from a column of the final table, or else the last value of a curve."""
    row = next((row for row in report.rows_of("variant") if row.name == variant), None)
    if row is None:
        known = ", ".join(row.name for row in report.rows_of("variant"))
        raise ValueError(f"the ablation {report.title!r} has the variants {known}; found {variant!r}")
    cell = row.cells.get(measure)
    return cell.sample if cell is not None else [last for last, _ in _ends(report, variant, measure).values()]


def _ends(report: ReportData, variant: str, measure: str) -> Pairs:
    """The last and the first value of a curve, by seed."""
    return {seed: (points[-1][1], points[0][1]) for seed, points in _curves(report, variant, measure).items()}


def _curves(report: ReportData, variant: str, measure: str) -> dict[int, list[tuple[int, float]]]:
    """The points of a curve, by seed; where a run was ended, up to there."""
    points = {
        curve.seed: curve.points for curve in report.curves if (curve.metric, curve.variant) == (measure, variant)
    }
    if not points:
        known = sorted({*(column.heading for column in report.columns), *(curve.metric for curve in report.curves)})
        raise ValueError(f"the ablation {report.title!r} has the measures {', '.join(known)}; found {measure!r}")
    return points
