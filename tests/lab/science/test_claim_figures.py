"""The figure of a claim says what is compared and where the difference lies, without the tables of its page."""

import pytest

from lab.science.claim_verdicts import DecidedClaim, Evidence, Verdict
from lab.science.claims import Claim, Relationship
from lab.science.science_page import STANDINGS, claim_figure
from turnwise.statistics import Interval, student_over_seeds


def evidence(differences: tuple[float, ...], relation: str = "above", worth_having: float | None = None) -> Evidence:
    """Of `ours` against `theirs`, at 0.5 and 0.4 in success, with these differences."""
    named = {"ablation": "runs", "variant": "ours", "relation": relation, "than": "theirs", "measure": "success"}
    estimate = student_over_seeds(differences)
    return Evidence(Relationship.model_validate(named), estimate, 0.2, 0.2, True, (0.5, 0.4), worth_having)


def decided(*found: Evidence) -> DecidedClaim:
    relations = [each.relationship.model_dump() for each in found] or [evidence((0.1, 0.2)).relationship.model_dump()]
    claim = Claim.model_validate({"claim": "Ours is better", "source": "", "relations": relations})
    return DecidedClaim(claim, Verdict.NOT_DECIDED if found else Verdict.NOT_RUN, found)


def test_the_description_has_the_verdict_and_what_was_compared() -> None:
    figure = claim_figure("page", 3, decided(evidence((0.0, 0.2))), {})
    assert figure is not None and figure.name == "claims/page-3"
    assert figure.description == (
        "Ours is better: not decided at this scale. ours 0.50 against theirs 0.40 in success; 2 seeds: open."
    )


def test_a_claim_of_which_nothing_was_run_has_no_figure() -> None:
    assert claim_figure("page", 1, decided(), {}) is None


@pytest.mark.parametrize(("relation", "side"), [("above", 1.0), ("below", -1.0)])
def test_a_band_shades_the_claimed_side_and_holds_all_that_it_shows(relation: str, side: float) -> None:
    figure = claim_figure("page", 1, decided(evidence((0.01, 0.03), relation, worth_having=0.2)), {})
    assert figure is not None
    (axes,) = figure.draw(True).axes
    left, right = axes.get_xlim()
    shade = axes.patches[0].get_window_extent().transformed(axes.transData.inverted())
    assert (shade.x0, shade.x1) == pytest.approx((0.0, right) if side > 0 else (left, 0.0), abs=1e-9)
    assert left < min(-0.2 * (side < 0), 0.01) and right > max(0.2 * (side > 0), 0.03)
    assert side * 0.2 in [line.get_xdata()[0] for line in axes.lines]


def test_bands_of_one_measure_span_the_same() -> None:
    figure = claim_figure("page", 1, decided(evidence((0.0, 0.1)), evidence((0.5, 0.6))), {})
    assert figure is not None
    first, second = figure.draw(True).axes
    assert first.get_xlim() == second.get_xlim()


def test_what_fell_in_too_few_seeds_is_said_and_draws_nothing() -> None:
    named = {"ablation": "runs", "variant": "ours", "relation": "falls before", "measure": "spread", "later": "entropy"}
    nothing = Evidence(Relationship.model_validate(named), None, 1.0, 1.0, True)
    figure = claim_figure("page", 1, decided(nothing), {})
    assert figure is not None and "fewer than 2 seeds: open" in figure.description
    assert figure.data == [("ours falls before entropy", "spread", None, None, None, None)]
    assert figure.png().startswith(b"\x89PNG")


def test_a_deviation_has_a_point_and_no_bar() -> None:
    named = {
        "ablation": "runs",
        "variant": "ours",
        "relation": "varies less than",
        "than": "theirs",
        "measure": "success",
    }
    spread = Evidence(
        Relationship.model_validate(named), Interval(-0.1, None, None, "seeds", 5), 0.2, 0.2, True, (0.1, 0.2)
    )
    figure = claim_figure("page", 1, decided(spread), {})
    assert figure is not None and "ours varies by 0.10, theirs by 0.20, in success; 5 seeds: open" in figure.description
    assert figure.data == [("ours varies less than theirs", "success", -0.1, None, None, None)]


def test_every_standing_has_a_colour_of_its_own() -> None:
    assert len(set(STANDINGS.values())) == len(STANDINGS) == 4


def test_a_measure_that_is_a_curve_is_called_by_its_heading() -> None:
    named = {"ablation": "runs", "variant": "ours", "relation": "falls", "measure": "policy/entropy"}
    falls = Evidence(Relationship.model_validate(named), student_over_seeds((-0.4, -0.2)), 0.2, 0.2, True, (0.1, 0.4))
    figure = claim_figure("page", 1, decided(falls), {"policy/entropy": "entropy of the replies"})
    assert figure is not None and "ours: entropy of the replies, from 0.40 to 0.10; 2 seeds: open" in figure.description
