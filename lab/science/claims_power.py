"""What the seeds of a page of claims can decide: planned from pilots before the runs, and told of what stayed open.

Both tables use the level of the correction's first step, `LEVEL` divided by the number of the page's relations, as if a
relation had the smallest p of all: nobody knows beforehand where it will stand.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from lab.science.claim_verdicts import LEVEL, DecidedClaim, Evidence, Verdict
from lab.science.claims import ClaimsPage, PlannedPower
from turnwise.results.report_data import ReportData
from turnwise.statistics.power import seeds_to_decide, smallest_decided


@dataclass(frozen=True)
class PlannedSeeds:
    """How many seeds a difference that is worth having needs, by a pilot, and how many were run."""

    ablation: str
    planned: PlannedPower
    needed: int | None
    """None where more than a thousand would be needed."""
    run: int
    """0 where the ablation was not run."""


@dataclass(frozen=True)
class OpenRelation:
    """A relation that stayed open, and what would decide it."""

    evidence: Evidence
    deviation: float | None
    """Of the differences over the seeds that were run; None where the test is not of their mean, or they are equal."""
    decidable: float | None
    """The smallest difference that as many seeds decide."""
    worth_having: float | None
    needed: int | None
    """The seeds that decide the difference worth having; None where it is not stated, or a thousand are too few."""
    seconds: float | None
    """What they cost on the machine that made the runs, at its time for each seed."""


def planned_seeds(claims: ClaimsPage, reports: Mapping[str, ReportData]) -> list[PlannedSeeds]:
    """The seeds that each measure with a pilot needs, in the order of the page's file."""
    level = LEVEL / max(1, len(_relations(claims)))
    return [
        PlannedSeeds(
            name,
            planned,
            seeds_to_decide(planned.worth_having, planned.deviation, level),
            len({curve.seed for curve in reports[name].curves}) if name in reports else 0,
        )
        for name, ablation in claims.ablations.items()
        for planned in ablation.power
    ]


def open_relations(
    claims: ClaimsPage, decisions: Sequence[DecidedClaim], reports: Mapping[str, ReportData]
) -> list[OpenRelation]:
    """The relations that neither hold nor are reversed, of the claims that were not decided, each once."""
    level = LEVEL / max(1, len(_relations(claims)))
    undecided = {
        evidence.relationship: evidence
        for decided in decisions
        if decided.verdict is Verdict.NOT_DECIDED
        for evidence in decided.evidence
        if not evidence.holds
    }
    return [_open(claims, evidence, reports, level) for evidence in undecided.values()]


def _relations(claims: ClaimsPage) -> set[object]:
    return {each for claim in claims.claims for each in claim.relations}


def _open(claims: ClaimsPage, evidence: Evidence, reports: Mapping[str, ReportData], level: float) -> OpenRelation:
    relationship, sample = evidence.relationship, evidence.estimate.sample if evidence.estimate else ()
    worth = evidence.worth_having
    deviation = float(np.std(sample, ddof=1)) if len(sample) > 1 else 0.0
    if relationship.relation in ("varies less than", "falls before") or deviation == 0.0:
        return OpenRelation(evidence, None, None, worth, None, None)
    needed = None if worth is None else seeds_to_decide(worth, deviation, level)
    each_seed = sum(sum(reports[name].seconds.values()) for name in relationship.ablations) / len(sample)
    return OpenRelation(
        evidence,
        deviation,
        smallest_decided(deviation, len(sample), level),
        worth,
        needed,
        None if needed is None else needed * each_seed,
    )
