"""Rewards that differ by rounding are equal for everything that asks whether a group has spread."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise.credit import CreditBatch, account, estimate
from turnwise.credit.selection import group_deviations, select
from turnwise.data.tolerance import alike, distinct
from turnwise.statistics.group_spread import expected_spread

ROUNDED = [0.1 + 0.1 + 0.1, 0.3, 0.3, 0.1 + 0.2]
"""0.30000000000000004 and 0.3."""


def batch(outcomes: list[float]) -> CreditBatch:
    return CreditBatch(
        group=[0] * len(outcomes),
        turn_rewards=[[0.0]] * len(outcomes),
        outcome=outcomes,
        reply_lengths=[[2]] * len(outcomes),
        anchors=[["start"]] * len(outcomes),
    )


@pytest.mark.parametrize(
    "spread",
    [
        lambda rewards: estimate("grpo", batch(rewards)).values.any(),
        lambda rewards: estimate("grpo", batch(rewards), deviation="none").values.any(),
        lambda rewards: estimate("rloo", batch(rewards)).values.any(),
        lambda rewards: estimate("mt-grpo", batch(rewards)).values.any(),
        lambda rewards: estimate("mt-grpo", batch(rewards), rule="paper").values.any(),
        lambda rewards: estimate("gigpo", batch(rewards)).values.any(),
        lambda rewards: estimate("reinforce++", batch(rewards)).values.any(),
        lambda rewards: estimate("reinforce++-baseline", batch(rewards)).values.any(),
        lambda rewards: group_deviations([0] * len(rewards), rewards)[0],
        lambda rewards: select("mixed", group_deviations([0] * len(rewards), rewards), seed=0).kept,
        lambda rewards: account(batch(rewards), estimate("grpo", batch(rewards)), 4)["reward_deviation_within_groups"],
        lambda rewards: expected_spread([rewards], 4).most,
    ],
)
def test_every_rule_sees_no_spread_in_rounding(spread: Callable[[list[float]], object]) -> None:
    assert ROUNDED[0] != ROUNDED[1]
    assert not spread(ROUNDED)
    assert spread([*ROUNDED[:3], 0.3 + 1e-9]), "and a billionth is a difference"


def test_a_selection_counts_a_group_that_differs_by_rounding_as_one_without_spread() -> None:
    deviations = group_deviations([0] * 4 + [1] * 4, [*ROUNDED, 0.0, 0.0, 1.0, 1.0])
    chosen = select("mixed", deviations, seed=0)
    assert chosen.kept == (1,)
    assert chosen.record()["groups_without_spread"] == 1.0


def test_terms_that_cancel_leave_rounding_alone() -> None:
    assert alike([0.1 + 0.2 - 0.3, 0.0, -(0.1 + 0.2 - 0.3)])
    assert not alike([1e-9, 0.0])
    assert alike([]) and alike([4.0])


@given(st.lists(st.sampled_from([0.0, 0.25, 0.1 + 0.2, 0.3, 1.0]), max_size=8))
def test_distinct_values_keep_their_places_and_their_order(values: list[float]) -> None:
    found = distinct(values)
    assert found == [min(value, 0.3) if value < 0.5 else value for value in values] or 0.3 not in values
    assert alike(values) == (len(set(found)) <= 1)
