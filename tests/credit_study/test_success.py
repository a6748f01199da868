"""Closeness to the truth against success: rank correlations worked by hand, their bootstrap, and the figure."""

from __future__ import annotations

import io
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from scipy.stats import spearmanr

from turnwise.credit_study.figures import success_figure
from turnwise.credit_study.gradient_noise import GradientNoise
from turnwise.credit_study.page import page, print_success
from turnwise.credit_study.study import TRUTH, RuleFigures, Study
from turnwise.credit_study.success import (
    MEASURES,
    SuccessStudy,
    Trained,
    predict,
    rank_correlations,
    success_study,
)
from turnwise.credit_study.truth import Agreement
from turnwise.statistics import Interval, student_over_seeds
from turnwise.statistics.curves import AtEqualBudget

CLOSENESS = [0.1, 0.2, 0.4, 0.8, 0.6]
# Ranks 1, 2, 3, 5, 4 of closeness and 1, 3, 2, 5, 4 of success: 1 - 6 * (0 + 1 + 1) / (5 * 24) = 0.9.
SUCCESS = [[0.1, 0.2], [0.3, 0.4], [0.2, 0.3], [0.8, 0.9], [0.5, 0.6]]


def alone(value: float) -> Interval:
    return Interval(value, None, None, "tasks", 4)


def rule(title: str, closeness: float | None) -> RuleFigures:
    """A rule with the same closeness by every measure."""
    found = None if closeness is None else alone(closeness)
    wrong = None if closeness is None else alone(1 - closeness)
    agreement = Agreement(found, None, None, (), rank_correlation=found, sign_errors=wrong)
    return RuleFigures(title, GradientNoise(1.0, 1.0, None, found), agreement)


def trained(closeness: list[float | None], success: list[list[float]]) -> list[Trained]:
    return [
        Trained(f"variant {place}", rule(f"rule {place}", near), student_over_seeds(of_seeds, within=(0.0, 1.0)))
        for place, (near, of_seeds) in enumerate(zip(closeness, success, strict=True))
    ]


def study_of(rules: list[RuleFigures]) -> Study:
    truth = RuleFigures(TRUTH, GradientNoise(1.0, 1.0, None, None), None)
    return Study((truth, *rules), {"lost": "it needs trees"}, 4, 8, 16, 0.5, 0.3, 0.1)


@pytest.mark.parametrize("measure", MEASURES)
def test_ranks_of_closeness_and_success_are_correlated_over_rules(measure: str) -> None:
    found = predict(measure, trained([*CLOSENESS], SUCCESS), seed=0)
    assert (found.correlation, found.rules) == (pytest.approx(0.9), 5)
    assert found.low is not None and found.high is not None and -1.0 <= found.low < 0.9 <= found.high <= 1.0
    assert found == predict(measure, trained([*CLOSENESS], SUCCESS), seed=0)
    assert "rank correlation 0.90 (" in found.spelled


def test_the_interval_is_over_rules_and_over_seeds() -> None:
    # Without spread over rules: closeness orders ten rules as success does, whichever of them are drawn.
    near = [place / 10 for place in range(10)]
    exact = predict("cosine", trained([*near], [[value, value] for value in near]), seed=0)
    assert (exact.correlation, exact.low, exact.high) == (1.0, None, None), "a width of 0 would claim certainty"
    assert exact.spelled == "rank correlation 1.00 (no interval)"
    # Seeds that differ by more than the rules do widen it, though the means are the same.
    spread = predict("cosine", trained([*near], [[value - 0.4, value + 0.4] for value in near]), seed=0)
    assert spread.correlation == 1.0
    assert spread.low is not None and spread.low < 0.95


def test_too_few_rules_and_rules_that_are_all_alike_have_no_correlation() -> None:
    few = predict("cosine", trained([*CLOSENESS[:3]], SUCCESS[:3]), seed=0)
    alike = predict("cosine", trained([0.5] * 5, SUCCESS), seed=0)
    partly = predict("cosine", trained([*CLOSENESS[:3], None, None], SUCCESS), seed=0)
    assert [found.correlation for found in (few, alike, partly)] == [None] * 3
    assert (few.rules, alike.rules, partly.rules) == (3, 5, 3)
    assert few.spelled == "3 rules: no rank correlation"


@given(st.lists(st.tuples(st.integers(-3, 3), st.integers(-3, 3)), min_size=2, max_size=9))
def test_the_rank_correlation_is_scipys(pairs: list[tuple[int, int]]) -> None:
    one, other = np.array(pairs, dtype=np.float64).T
    (found,) = rank_correlations(one[None], other[None])
    if np.ptp(one) == 0 or np.ptp(other) == 0:
        assert np.isnan(found)
    else:
        assert found == pytest.approx(spearmanr(one, other).statistic)


def found_study(axis: str = "sampled_tokens") -> SuccessStudy:
    rules = [each.rule for each in trained([*CLOSENESS], SUCCESS)]
    titles = {f"v{place}": f"rule {place}" for place in range(5)} | {"v5": "lost"}
    success = {
        f"v{place}": student_over_seeds(of_seeds, within=(0.0, 1.0))
        for place, of_seeds in enumerate([*SUCCESS, [0.5, 0.5]])
    }
    return success_study(study_of(rules), titles, AtEqualBudget(axis, 1000.0, success), seed=0)


def test_runs_meet_the_rules_that_they_were_trained_with_and_others_are_named() -> None:
    found = found_study()
    assert [(each.variant, each.rule.title) for each in found.trained] == [(f"v{n}", f"rule {n}") for n in range(5)]
    assert found.without == ("v5",)
    assert [each.measure for each in found.predictions] == [*MEASURES]
    assert all(each.correlation == pytest.approx(0.9) for each in found.predictions)


def test_the_figure_has_a_panel_for_each_measure_with_a_point_for_each_rule() -> None:
    figure = success_figure(found_study())
    drawn = figure.draw(True)
    assert len(drawn.axes) == len(MEASURES)
    for axes in drawn.axes:
        points = [line for line in axes.lines if line.get_marker() != "None"]
        assert [line.get_label() for line in points] == [f"v{place}" for place in range(5)]
        assert [float(line.get_xdata()[0]) for line in points] == pytest.approx(CLOSENESS)  # type: ignore[index]
    assert figure.png() == success_figure(found_study()).png()
    assert (figure.name, success_figure(found_study("seconds")).name) == ("success", "success-seconds")
    assert [row[:3] for row in figure.data][:1] == [("v0", "rule 0", pytest.approx(0.1))]


def test_page_and_terminal_say_what_closeness_predicts() -> None:
    console = Console(file=io.StringIO(), width=80, force_terminal=False)
    print_success(found_study(), console)
    assert isinstance(console.file, io.StringIO)
    printed = console.file.getvalue()
    assert max(map(len, printed.splitlines())) <= 80
    both = [(found_study(), "success.png"), (found_study("seconds"), "success-seconds.png")]
    written = page(study_of([]), {}, "figure.png", both)
    assert (
        "success after 1,000 seconds\n\n![Closeness to the truth and success of each rule](success-seconds.png)"
        in written
    )
    for text in (" ".join(printed.split()), written):
        assert "1,000 sampled tokens" in text and "rank correlation 0.90" in text
        assert "v5 is left out: the study does not judge its rule" in text
    assert "](success.png)" in written and "success" not in page(study_of([]), {}, "figure.png").lower()


def test_right_signs_are_the_other_share_with_its_interval_turned() -> None:
    wrong = Interval(0.2, 0.1, 0.4, "tasks", 4, 0.95, "percentile bootstrap")
    agreement = replace(rule("r", 0.5).agreement or Agreement(None, None, None, ()), sign_errors=wrong)
    found = MEASURES["right signs"](replace(rule("r", 0.5), agreement=agreement))
    assert found is not None and (found.value, found.low, found.high) == pytest.approx((0.8, 0.6, 0.9))
