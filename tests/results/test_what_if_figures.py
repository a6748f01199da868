"""The figures of rules on one rollout, with numbers worked by hand."""

from __future__ import annotations

import pytest

from turnwise.results.what_if import compare_rules

FIRST = {0: [1.0, -1.0], 1: [-1.0], 2: [0.0, 1.0]}
OTHER = {0: [2.0, 2.0], 2: [0.0, 2.0], 3: [5.0]}


def test_sizes_shares_and_turns_are_means_over_all_turns_and_comparisons_over_those_that_both_have() -> None:
    first, other = compare_rules({"grpo": FIRST, "rloo": OTHER})
    assert (first.trajectories, first.turns, first.size, first.zero_share) == (3, 5, 0.8, 0.2)
    assert (first.correlation, first.opposite_share) == (None, None)
    assert [(each.count, each.mean) for each in first.by_turn] == [(3, 0.0), (2, 0.0)]
    assert first.by_turn[0].deviation == pytest.approx((2 / 3) ** 0.5)
    assert (other.trajectories, other.turns, other.size) == (3, 5, 2.2)
    # Of trajectories 0 and 2: (1, -1, 0, 1) and (2, 2, 0, 2). Covariance 0.125, variances 0.6875 and 0.75.
    assert other.correlation == pytest.approx(0.125 / (0.6875 * 0.75) ** 0.5)
    assert other.opposite_share == 0.25
    assert [(each.count, each.mean) for each in other.by_turn] == [(3, pytest.approx(7 / 3)), (2, 2.0)]
    assert other.by_turn[0].correlation == pytest.approx(1.0) and other.by_turn[1].correlation is None


def test_rules_without_a_shared_trajectory_are_not_compared() -> None:
    _, other = compare_rules({"grpo": {0: [1.0]}, "rloo": {1: [1.0]}})
    assert (other.correlation, other.opposite_share) == (None, None)
    (alone,) = compare_rules({"grpo": {}})
    assert (alone.turns, alone.size, alone.by_turn) == (0, 0.0, [])
