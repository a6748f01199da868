"""A suite's measures: those that rliable's own functions give, and what holds of any scores."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turnwise.statistics.suite import Scores, measure_suite

X = {"a": [0.71, 0.19, -0.09, 0.51, 0.23], "b": [1.07, 0.29, 0.97, 0.29, 0.48], "c": [0.91, 1.04, 0.94, 0.26, 0.56]}
Y = {"a": [0.55, 0.62, 0.16, 0.04, 0.92], "b": [1.0, 0.99, 0.61, 0.51, 0.63], "c": [0.79, 0.22, 0.04, 0.47, 0.51]}
WORLDS = "abc"


def test_the_measures_are_those_of_rliable() -> None:
    """By rliable 1.2.0: aggregate_iqm, aggregate_mean, aggregate_optimality_gap, probability_of_improvement and
    run_score_deviation of these scores, and get_interval_estimates with 20,000 resamples.
    """
    suite = measure_suite({"x": X, "y": Y})
    x, y = suite.rules
    found = [(rule.interquartile_mean.value, rule.mean.value, rule.optimality_gap.value) for rule in (x, y)]
    assert found[0] == pytest.approx((0.55, 0.5573333333333333, 0.45))
    assert found[1] == pytest.approx((0.5455555555555556, 0.5373333333333333, 0.4626666666666668))
    ((one, other, improvement),) = suite.improvement
    assert (one, other, improvement.value) == ("x", "y", pytest.approx(0.52))
    profile = dict(x.profile)
    shares = [profile[at].value for at in (0.0, 0.25, 0.5, 0.75, 1.0)]
    assert shares == pytest.approx([14 / 15, 12 / 15, 8 / 15, 5 / 15, 2 / 15])
    for interval, low, high in (
        (x.interquartile_mean, 0.35111111, 0.76666667),
        (x.optimality_gap, 0.30266667, 0.59735),
        (y.interquartile_mean, 0.37888889, 0.70888889),
        (y.optimality_gap, 0.32866667, 0.59466667),
    ):
        assert (interval.low, interval.high) == pytest.approx((low, high), abs=0.02), (
            "other draws of the same bootstrap"
        )


def test_ranks_are_places_by_world_and_ties_share_them() -> None:
    scores = {"best": {"a": [0.9], "b": [0.5]}, "tied": {"a": [0.4], "b": [0.5]}, "last": {"a": [0.1], "b": [0.2]}}
    # World a: 1, 2, 3. World b: 1.5, 1.5, 3.
    assert [rule.rank.value for rule in measure_suite(scores).rules] == [1.25, 1.75, 3.0]


def test_only_worlds_that_every_rule_has_count() -> None:
    suite = measure_suite({"x": {**X, "only x": [0.0] * 5}, "y": {**Y, "empty": []}})
    assert suite.worlds == ["a", "b", "c"]
    assert suite.rules == measure_suite({"x": X, "y": Y}).rules


@pytest.mark.parametrize("scores", [{"x": {"a": [0.5]}, "y": {"b": [0.5]}}, {"x": {"a": [np.nan]}}])
def test_rules_without_a_common_world_or_a_finite_score_are_refused(scores: Scores) -> None:
    with pytest.raises(ValueError, match="must share a world, with finite scores"):
        measure_suite(scores)


RUNS = st.lists(st.floats(-0.5, 1.5), min_size=1, max_size=4)


@settings(max_examples=15, deadline=None)
@given(st.lists(st.tuples(RUNS, RUNS), min_size=2, max_size=3))
def test_what_holds_of_any_scores(rules: list[tuple[list[float], list[float]]]) -> None:
    suite = measure_suite({f"rule {place}": dict(zip("ab", each, strict=True)) for place, each in enumerate(rules)})
    places = [rule.rank.value for rule in suite.rules]
    assert sum(places) == pytest.approx(len(rules) * (len(rules) + 1) / 2)
    for rule, (first, second) in zip(suite.rules, rules, strict=True):
        assert min(first + second) - 1e-9 <= rule.interquartile_mean.value <= max(first + second) + 1e-9
        assert rule.mean.value + rule.optimality_gap.value >= 1 - 0.5 - 1e-9  # scores are at most 1.5
        shares = [share.value for _, share in rule.profile]
        assert shares == sorted(shares, reverse=True)
        for interval in (rule.interquartile_mean, rule.mean, rule.optimality_gap, rule.rank):
            assert interval.low is not None and interval.high is not None
            assert interval.low <= interval.value <= interval.high
    assert all(0 <= chance.value <= 1 for _, _, chance in suite.improvement)
