"""A page says before the runs how many seeds it needs, and after them what would decide what stayed open."""

from typing import Any

import pytest

from lab.science.claim_verdicts import decide
from lab.science.claims import ClaimsPage
from lab.science.claims_power import open_relations, planned_seeds
from turnwise.results.report_data import Curve, ReportColumn, ReportData, Row
from turnwise.statistics import student_over_seeds
from turnwise.statistics.power import seeds_to_decide, smallest_decided

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


def test_without_a_difference_that_is_worth_having_no_seeds_are_asked_for() -> None:
    claims = page("above")
    (found,) = open_relations(claims, decide(claims, RUNS), RUNS)
    assert found.decidable is not None and (found.worth_having, found.needed, found.seconds) == (None, None, None)


def test_a_relation_of_deviations_has_no_such_figure() -> None:
    claims, alike = page("varies less than"), runs((0.46, 0.52, 0.54, 0.50))
    (found,) = open_relations(claims, decide(claims, alike), alike)
    assert (found.deviation, found.decidable, found.needed) == (None, None, None)


def test_what_is_decided_is_not_open() -> None:
    claims, apart = page("above"), runs((0.1, 0.14, 0.09, 0.1))
    assert open_relations(claims, decide(claims, apart), apart) == []
