"""Verdicts on claims from the runs of ablations, by one rule for all claims.

Runs of two variants with the same seed draw the same tasks, so tests are paired by seed:

    above, below        Student's t on the paired differences (Student 1908)
    varies less than    Pitman and Morgan's test for two variances of pairs: the correlation of sum and difference
    rises, falls        Student's t on the last value of a curve minus its first
    falls before        Student's t on the iterations between two curves' falls, over seeds in which both fall

The two-sided p values of all relations of a page are corrected together (Holm 1979); a relation that several claims
need is tested once. A relation *holds* if its corrected p is below 0.05 and the estimate lies on the claimed side, *is
reversed* if the corrected p is below 0.05 and the estimate lies on the other side, and is *open* otherwise. A claim
**held** if all its relations hold, is **not held** if one is reversed, is **not run** if an ablation that it needs is
missing, and is **not decided at this scale** otherwise. So a claim needs evidence, and so does its opposite.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from turnwise.reporting.data.report_data import ReportData
from turnwise.statistics import Interval, student_over_seeds
from turnwise.statistics.significance import holm
from turnwise.studies.claims import Claim, ClaimsPage, Relationship

LEVEL = 0.05
FALLEN = 0.5
"""The fraction of its first value below which a curve has fallen."""


class Verdict(StrEnum):
    """The verdict on a claim."""

    HELD = "held"
    NOT_HELD = "not held"
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
    """The p-value corrected by Holm's rule over all relations of the page."""
    as_claimed: bool
    """Whether the estimate lies on the claimed side."""

    @property
    def holds(self) -> bool:
        """Whether the relation is shown: on the claimed side, with a corrected p below `LEVEL`."""
        return self.as_claimed and self.corrected < LEVEL

    @property
    def reversed(self) -> bool:
        """Whether the opposite is shown: on the other side, with a corrected p below `LEVEL`."""
        return not self.as_claimed and self.corrected < LEVEL


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
    found = [_test(each, reports[each.ablation], reports[each.other or each.ablation]) for each in relationships]
    corrected = [p for p in holm([p for _, p, _ in found]) if p is not None]
    evidence = {
        each: Evidence(each, estimate, p, adjusted, as_claimed)
        for each, (estimate, p, as_claimed), adjusted in zip(relationships, found, corrected, strict=True)
    }
    return [_decision(claim, evidence) for claim in page.claims]


def _decision(claim: Claim, evidence: Mapping[Relationship, Evidence]) -> DecidedClaim:
    if any(each not in evidence for each in claim.relations):
        return DecidedClaim(claim, Verdict.NOT_RUN, ())
    found = tuple(evidence[each] for each in claim.relations)
    if any(each.reversed for each in found):
        return DecidedClaim(claim, Verdict.NOT_HELD, found)
    return DecidedClaim(claim, Verdict.HELD if all(each.holds for each in found) else Verdict.NOT_DECIDED, found)


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
        return _mean(np.array(last) - np.array(first), relationship.relation == "rises")
    _require_the_same_tasks(relationship, report, counterpart)
    own = np.array(_finals(report, relationship.variant, relationship.measure))
    other = np.array(_finals(counterpart, relationship.than, relationship.measure))
    if len(own) != len(other) or len(own) < 2:
        raise ValueError(
            f"{relationship.sentence}: seeds must be in common, two at least; found {len(own)} and {len(other)}"
        )
    if relationship.relation == "varies less than":
        return _spread(own, other)
    return _mean(own - other, relationship.relation == "above")


def _require_the_same_tasks(relationship: Relationship, report: ReportData, counterpart: ReportData) -> None:
    """Raise ValueError if two ablations cannot be paired by seed: other seeds, or another test task set."""
    for what, own, other in (
        ("seeds", *({curve.seed for curve in each.curves} for each in (report, counterpart))),
        ("test task set", *(dict(each.lineage).get("test task set") for each in (report, counterpart))),
    ):
        if own != other:
            raise ValueError(f"{relationship.sentence}: the {what} must be the same in both; found {own} and {other}")


def _mean(differences: np.ndarray, upwards: bool) -> tuple[Interval, float, bool]:
    from scipy import stats

    estimate = student_over_seeds([float(each) for each in differences])
    if np.ptp(differences) == 0:  # t is undefined without spread: a two-sided sign test instead, since all seeds agree
        return estimate, 1.0 if estimate.value == 0 else 2.0 ** (1 - len(differences)), (estimate.value > 0) == upwards
    p = float(stats.ttest_1samp(differences, 0.0).pvalue)
    return estimate, p, (estimate.value > 0) == upwards


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
