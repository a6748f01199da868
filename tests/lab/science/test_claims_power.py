"""A page says before the runs how many seeds it needs, and after them what would decide what stayed open."""

from dataclasses import replace
from typing import Any

import pytest

from lab.science.claim_verdicts import decide
from lab.science.claims import ClaimsPage
from lab.science.science_page import NIGHT, costs_of_deciding, open_relations, planned_seeds
from turnwise.reporting.formatting import duration
from turnwise.results.report_data import Curve, ReportColumn, ReportData, Row
from turnwise.statistics import student_over_seeds
from turnwise.statistics.power import seeds_to_correlate, seeds_to_decide, smallest_decided

OURS, THEIRS = (0.50, 0.54, 0.46, 0.52), (0.49, 0.50, 0.48, 0.49)
DEVIATION = 0.026458
"""Of 0.01, 0.04, -0.02 and 0.03, by hand: the squares about 0.015 sum to 0.0021, of which a third has this root."""


def page(*relations: str, power: tuple[dict[str, Any], ...] = ()) -> ClaimsPage:
    """A page with a claim for each relation between `ours` and `theirs`."""
    named = [
        {"ablation": "runs", "variant": "ours", "relation": relation, "than": "theirs", "measure": "success"}
        for relation in relations
    ]
    return ClaimsPage.model_validate(
        {
            "title": "",
            "paper": "",
            "introduction": "",
            "ablations": {"runs": {"overlays": [], "core": True, "about": "", "power": power}},
            "claims": [{"claim": "", "source": "", "relations": [each]} for each in named],
        }
    )


def runs(theirs: tuple[float, ...]) -> dict[str, ReportData]:
    """An ablation in which `ours` ended as `OURS` says."""
    rows = [
        Row(name, "variant", {"success": student_over_seeds(of)}) for name, of in (("ours", OURS), ("theirs", theirs))
    ]
    curves = [Curve("turns", "turns", "ours", seed, [(0, 1.0)]) for seed in range(4)]
    seconds = {"rollout": 100.0, "update": 300.0}
    return {
        "runs": ReportData(
            "runs", "", [ReportColumn("success", "success")], rows, curves, seconds, stages=list(seconds)
        )
    }


RUNS = runs(THEIRS)
PILOT = {"measure": "success", "worth_having": 0.05, "deviation": 0.04, "pilot": "seeds 101 to 103"}


def test_the_seeds_needed_are_those_of_the_level_at_which_the_correction_begins() -> None:
    (alone,) = planned_seeds(page("above", power=(PILOT,)), RUNS)
    assert alone.needed == seeds_to_decide(0.05, 0.04, 0.05) and alone.run == 4
    (beside,) = planned_seeds(page("above", "varies less than", power=(PILOT,)), {})
    assert beside.needed == seeds_to_decide(0.05, 0.04, 0.025) and beside.run == 0


def test_what_stayed_open_is_told_with_what_would_decide_it() -> None:
    claims = page("above", power=(PILOT,))
    (found,) = open_relations(claims, decide(claims, RUNS), RUNS)
    assert found.deviation == pytest.approx(DEVIATION, abs=1e-6)
    assert found.decidable == pytest.approx(smallest_decided(DEVIATION, 4, 0.05), abs=1e-5)
    assert found.needed == seeds_to_decide(0.05, DEVIATION, 0.05)
    assert found.needed is not None and found.seconds == pytest.approx(found.needed * 100.0)


def test_without_a_difference_that_is_worth_having_it_is_what_was_seen_that_would_be_decided() -> None:
    claims = page("above")
    (found,) = open_relations(claims, decide(claims, RUNS), RUNS)
    assert found.decidable is not None and found.worth_having is None
    assert found.needed == seeds_to_decide(0.015, DEVIATION, 0.05)


def test_two_deviations_need_the_seeds_that_find_the_correlation_of_sum_and_difference() -> None:
    # About their means the sums are 0.005, 0.025, -0.065, 0.035, the differences -0.015, 0.045, -0.025, -0.005:
    # products sum to 0.0025, squares to 0.0061 and 0.0029; r = 0.5944, artanh r = 0.6844, (2.8016 / 0.6844)^2 + 3.
    claims, open_runs = page("varies less than"), runs((0.52, 0.50, 0.49, 0.53))
    (found,) = open_relations(claims, decide(claims, open_runs), open_runs)
    assert (found.deviation, found.decidable) == (None, None)
    assert found.needed == seeds_to_correlate(0.5944, 0.05) == 20
    assert found.seconds == pytest.approx(2000.0)


def test_deviations_that_are_equal_would_never_be_told_apart() -> None:
    claims, alike = page("varies less than"), runs((0.46, 0.52, 0.54, 0.50))
    (found,) = open_relations(claims, decide(claims, alike), alike)
    assert (found.deviation, found.decidable, found.needed) == (None, None, None)
    (sentence,) = costs_of_deciding(decide(claims, alike), [found])
    assert "out of reach" in sentence and "1,000 seeds" in sentence


def test_what_deciding_costs_is_said_of_each_claim_that_is_open() -> None:
    claims = page("above", power=(PILOT,))
    decisions = decide(claims, RUNS)
    (found,) = open_relations(claims, decisions, RUNS)
    (sentence,) = costs_of_deciding(decisions, [found])
    assert found.seconds is not None
    assert sentence == f": {found.needed} seeds, {duration(found.seconds)}, within a night on two cores."
    (dear,) = costs_of_deciding(decisions, [replace(found, seconds=NIGHT + 1)])
    assert dear.endswith("out of reach of a night on two cores.")


def test_what_is_decided_is_not_open() -> None:
    claims, apart = page("above"), runs((0.1, 0.14, 0.09, 0.1))
    assert open_relations(claims, decide(claims, apart), apart) == []
