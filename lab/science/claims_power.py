"""What the seeds of a page of claims can decide: planned from pilots before the runs, and told of what stayed open.

Both tables use the level of the correction's first step, `LEVEL` divided by the number of the page's relations, as if a
relation had the smallest p of all: nobody knows beforehand where it will stand.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special

from lab.science.claim_verdicts import LEVEL, DecidedClaim, Evidence, Verdict
from lab.science.claims import ClaimsPage, PlannedPower
from turnwise.reporting.formatting import duration
from turnwise.results.report_data import ReportData
from turnwise.statistics.power import MOST_SEEDS, seeds_to_correlate, seeds_to_decide, smallest_decided

NIGHT = 12 * 3600.0
"""Seconds of two cores that are in reach."""


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
    """The seeds that decide the difference worth having or, where none is stated, as much as was seen; None where a
    thousand are too few, and for orders."""
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


def costs_of_deciding(decisions: Sequence[DecidedClaim], relations: Sequence[OpenRelation]) -> list[str]:
    """A sentence for each claim that was not decided: what deciding it would take, and whether a night is enough."""
    of_relation = {each.evidence.relationship: each for each in relations}
    return [
        f"{decided.claim.claim}: {_cost([of_relation[e.relationship] for e in decided.evidence if not e.holds])}."
        for decided in decisions
        if decided.verdict is Verdict.NOT_DECIDED
    ]


def _cost(relations: Sequence[OpenRelation]) -> str:
    if any(each.needed is None or each.seconds is None for each in relations):
        return (
            f"out of reach, since what was seen is too near to nothing, or varies too much, for {MOST_SEEDS:,} seeds "
            "to decide it"
        )
    seeds, seconds = max(each.needed or 0 for each in relations), max(each.seconds or 0.0 for each in relations)
    reach = "within a night on two cores" if seconds <= NIGHT else "out of reach of a night on two cores"
    return f"{seeds} seeds, {duration(seconds)}, {reach}"


def _open(claims: ClaimsPage, evidence: Evidence, reports: Mapping[str, ReportData], level: float) -> OpenRelation:
    relationship, estimate = evidence.relationship, evidence.estimate
    sample = estimate.sample if estimate else ()
    worth = evidence.worth_having
    deviation = float(np.std(sample, ddof=1)) if len(sample) > 1 else 0.0
    decidable = needed = None
    if relationship.relation == "varies less than" and estimate is not None:
        needed = seeds_to_correlate(_correlation(evidence.p, estimate.count), level)
    elif relationship.relation != "falls before" and estimate is not None and deviation > 0.0:
        decidable = smallest_decided(deviation, len(sample), level)
        needed = seeds_to_decide(abs(estimate.value) if worth is None else worth, deviation, level)
    each_seed = sum(sum(reports[name].seconds.values()) for name in relationship.ablations)
    seconds = None if needed is None or estimate is None else needed * each_seed / estimate.count
    return OpenRelation(evidence, deviation if decidable else None, decidable, worth, needed, seconds)


def _correlation(p: float, pairs: int) -> float:
    """The correlation, without its sign, that the t test of as many pairs gives this two-sided p."""
    t = float(special.stdtrit(pairs - 2, 1 - p / 2))
    return t / float(np.hypot(t, np.sqrt(pairs - 2)))
