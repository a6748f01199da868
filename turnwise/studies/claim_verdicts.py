"""Verdicts on claims from the runs of ablations, by one rule for all claims.

Runs of two variants with the same seed draw the same tasks, so tests are paired by seed:

    above, below        Student's t on the paired differences (Student 1908)
    varies less than    Pitman and Morgan's test for two variances of pairs: the correlation of sum and difference
    rises, falls        Student's t on the last value of a curve minus its first
    falls before        Student's t on the iterations between two curves' falls, over seeds in which both fall

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
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from turnwise.reporting.data.report_data import ReportData
from turnwise.statistics import Interval, student_over_seeds
from turnwise.statistics.significance import shaffer
from turnwise.studies.claims import Claim, ClaimsPage, Relationship

LEVEL = 0.05
FALLEN = 0.5
"""The fraction of its first value below which a curve has fallen."""


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
    None for `falls before` if both curves fall in fewer than two seeds."""
    p: float
    """Two-sided p-value of this relation alone."""
    corrected: float
    """That p-value corrected over all tests of the page."""
    as_claimed: bool
    """Whether the estimate lies on the claimed side."""
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


@dataclass(frozen=True)
class DecidedClaim:
    """A claim with its verdict and evidence."""

    claim: Claim
    verdict: Verdict
    evidence: tuple[Evidence, ...]


def decide(page: ClaimsPage, reports: Mapping[str, ReportData]) -> list[DecidedClaim]:
    """The decision for each claim. `reports` has the report data of the ablations that were run, by name.

    Raises ValueError for a variant or a measure that an ablation does not have, for two ablations with other seeds or
    another test task set, and for fewer than two seeds in common.
    """
    decidable = [
        claim for claim in page.claims if all(name in reports for each in claim.relations for name in each.ablations)
    ]
    relationships = list(dict.fromkeys(each for claim in decidable for each in claim.relations))
    tests = [_tests(page, each, reports) for each in relationships]
    corrected = shaffer([each.p_values for each in tests])
    evidence = {
        relationship: Evidence(relationship, each.estimate, each.p, ps[0], each.as_claimed, each.worth_having, *ps[1:])
        for relationship, each, ps in zip(relationships, tests, corrected, strict=True)
    }
    return [_decision(claim, evidence) for claim in page.claims]


def _decision(claim: Claim, evidence: Mapping[Relationship, Evidence]) -> DecidedClaim:
    if any(each not in evidence for each in claim.relations):
        return DecidedClaim(claim, Verdict.NOT_RUN, ())
    found = tuple(evidence[each] for each in claim.relations)
    if any(each.reversed for each in found):
        return DecidedClaim(claim, Verdict.NOT_HELD, found)
    if any(each.ruled_out for each in found):
        return DecidedClaim(claim, Verdict.TOO_SMALL, found)
    return DecidedClaim(claim, Verdict.HELD if all(each.holds for each in found) else Verdict.NOT_DECIDED, found)


@dataclass(frozen=True)
class _Tests:
    """The tests of one relation, before the correction."""

    estimate: Interval | None
    p: float
    as_claimed: bool
    worth_having: float | None
    p_of_as_much: float | None

    @property
    def p_values(self) -> list[float]:
        return [self.p] if self.p_of_as_much is None else [self.p, self.p_of_as_much]


def _tests(page: ClaimsPage, relationship: Relationship, reports: Mapping[str, ReportData]) -> _Tests:
    report, counterpart = reports[relationship.ablation], reports[relationship.other or relationship.ablation]
    estimate, p, as_claimed = _test(relationship, report, counterpart)
    worth_having = page.worth_having(relationship)
    if estimate is None or worth_having is None:
        return _Tests(estimate, p, as_claimed, worth_having, None)
    return _Tests(estimate, p, as_claimed, worth_having, _p_of_as_much(relationship, estimate.sample, worth_having))


def _test(
    relationship: Relationship, report: ReportData, counterpart: ReportData
) -> tuple[Interval | None, float, bool]:
    """The estimate, its two-sided p, and whether it lies on the claimed side.

    `report` has the runs of `relationship.variant`, `counterpart` those of `relationship.than`.
    """
    if relationship.than is None:
        if relationship.later is not None:
            return _order(report, relationship.variant, relationship.measure, relationship.later)
        first, last = _ends(report, relationship.variant, relationship.measure)
        return _mean(np.array(last) - np.array(first), relationship.upwards)
    _require_the_same_tasks(relationship, report, counterpart)
    own = np.array(_finals(report, relationship.variant, relationship.measure))
    other = np.array(_finals(counterpart, relationship.than, relationship.measure))
    if len(own) != len(other) or len(own) < 2:
        raise ValueError(
            f"{relationship.sentence}: seeds must be in common, two at least; found {len(own)} and {len(other)}"
        )
    if relationship.relation == "varies less than":
        return _spread(own, other)
    return _mean(own - other, relationship.upwards)


def _require_the_same_tasks(relationship: Relationship, report: ReportData, counterpart: ReportData) -> None:
    """Raise ValueError if two ablations cannot be paired by seed: other seeds, or another test task set."""
    for what, own, other in (
        ("seeds", *({curve.seed for curve in each.curves} for each in (report, counterpart))),
        ("test task set", *(dict(each.lineage).get("test task set") for each in (report, counterpart))),
    ):
        if own != other:
            raise ValueError(f"{relationship.sentence}: the {what} must be the same in both; found {own} and {other}")


def _mean(differences: np.ndarray, upwards: bool) -> tuple[Interval, float, bool]:
    estimate = student_over_seeds([float(each) for each in differences])
    return estimate, _p_of_mean(differences), (estimate.value > 0) == upwards


def _p_of_mean(differences: np.ndarray) -> float:
    """The two-sided p of a mean of zero."""
    from scipy import stats

    if np.ptp(differences) == 0:  # t is undefined without spread: a two-sided sign test instead, since all seeds agree
        return 1.0 if differences[0] == 0 else float(2.0 ** (1 - len(differences)))
    return float(stats.ttest_1samp(differences, 0.0).pvalue)


def _p_of_as_much(relationship: Relationship, differences: Sequence[float], worth_having: float) -> float:
    """The two-sided p of a mean that lies as far on the claimed side as is worth having; 1 where the estimate does."""
    claimed = np.array(differences) if relationship.upwards else -np.array(differences)
    return _p_of_mean(claimed - worth_having) if claimed.mean() < worth_having else 1.0


def _spread(own: np.ndarray, other: np.ndarray) -> tuple[Interval, float, bool]:
    from scipy import stats

    difference = float(own.std(ddof=1) - other.std(ddof=1))
    estimate = Interval(difference, None, None, "seeds", len(own))
    total, apart = own + other, own - other
    if len(own) < 3 or np.ptp(total) == 0 or np.ptp(apart) == 0:
        return estimate, 1.0, difference < 0
    return estimate, float(stats.pearsonr(total, apart).pvalue), difference < 0


def _order(report: ReportData, variant: str, earlier: str, later: str) -> tuple[Interval | None, float, bool]:
    """How many iterations one curve falls before another, over the seeds in which both fall.

    With fewer than two such seeds there is no estimate, and p is 1.
    """
    falls = zip(_falls(report, variant, earlier), _falls(report, variant, later), strict=True)
    apart = np.array([second - first for first, second in falls if first is not None and second is not None], float)
    if len(apart) < 2:
        return None, 1.0, True
    return _mean(apart, True)


def _falls(report: ReportData, variant: str, measure: str) -> list[int | None]:
    """The first iteration at which a curve has fallen, one per seed; None if it never does."""
    return [
        next((iteration for iteration, value in points if value < FALLEN * points[0][1]), None)
        for points in _curves(report, variant, measure)
    ]


def _finals(report: ReportData, variant: str, measure: str) -> Sequence[float]:
    """One value per seed: from a column of the final table, or else the last value of a curve."""
    row = next((row for row in report.rows_of("variant") if row.name == variant), None)
    if row is None:
        known = ", ".join(row.name for row in report.rows_of("variant"))
        raise ValueError(f"the ablation {report.title!r} has the variants {known}; found {variant!r}")
    cell = row.cells.get(measure)
    return cell.sample if cell is not None else _ends(report, variant, measure)[1]


def _ends(report: ReportData, variant: str, measure: str) -> tuple[list[float], list[float]]:
    """The first and the last values of a curve, each one per seed."""
    points = _curves(report, variant, measure)
    return [each[0][1] for each in points], [each[-1][1] for each in points]


def _curves(report: ReportData, variant: str, measure: str) -> list[list[tuple[int, float]]]:
    """The points of a curve, one list per seed."""
    points = [curve.points for curve in report.curves if (curve.metric, curve.variant) == (measure, variant)]
    if not points:
        known = sorted({*(column.heading for column in report.columns), *(curve.metric for curve in report.curves)})
        raise ValueError(f"the ablation {report.title!r} has the measures {', '.join(known)}; found {measure!r}")
    return points
