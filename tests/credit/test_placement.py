"""Which rewards count, and where they are paid: worked by hand, and that nothing is lost on the way."""

from __future__ import annotations

import math

import pytest
from credit_samples import UNEQUAL, batches
from hypothesis import given

from turnwise.credit import CreditBatch
from turnwise.credit.placement import on_tokens, on_turns, own_rewards, placed
from turnwise.errors import CreditError

# Two turns of two and one tokens, and one turn of one, with rewards per token.
TOKENS = CreditBatch(
    group=[0, 0],
    turn_rewards=[[0.5, 1.0], [0.25]],
    outcome=[2.0, -1.0],
    reply_lengths=[[2, 1], [1]],
    token_rewards=[[0.1, 0.2, 0.4], [0.8]],
)


def test_merged_adds_the_turn_rewards_to_the_outcome() -> None:
    assert UNEQUAL.scores("outcome").tolist() == [1.0, 0.0, 0.5]
    assert UNEQUAL.scores("merged").tolist() == pytest.approx([2.5, 0.3, 0.5])


def test_rewards_per_token_are_added_to_the_total_of_their_trajectory() -> None:
    assert TOKENS.totals("outcome").tolist() == pytest.approx([2.7, -0.2])
    assert TOKENS.totals("merged").tolist() == pytest.approx([4.2, 0.05])


def test_each_placement_worked_by_hand() -> None:
    expected = {
        "turn": [[0.5, 3.0], [-0.75]],
        "merged": [[0.0, 3.5], [-0.75]],
        "outcome": [[0.0, 2.0], [-1.0]],
    }
    for placement, rewards in expected.items():
        assert placed(TOKENS, placement).tolist() == rewards
    # The tokens of the first turn are paid 0.3 in all, that of the second 0.4, that of the other trajectory 0.8.
    assert on_turns(TOKENS, "turn").tolist() == [pytest.approx([0.8, 3.4]), pytest.approx([0.05])]
    assert own_rewards(TOKENS).tolist() == [pytest.approx([0.8, 1.4]), pytest.approx([1.05])]


def test_a_turns_reward_is_paid_at_the_last_token_of_its_reply() -> None:
    assert on_tokens(TOKENS, placed(TOKENS, "turn")).tolist() == [pytest.approx([0.1, 0.7, 3.4]), pytest.approx([0.05])]


def test_tokens_cannot_be_paid_where_their_number_is_not_known() -> None:
    with pytest.raises(CreditError, match="TW-rule-lacks-input"):
        on_tokens(UNEQUAL, placed(UNEQUAL, "turn"))


@given(batches())
def test_turn_and_merged_differ_in_placement_alone(batch: CreditBatch) -> None:
    by_turn, merged = (placed(batch, placement).tolist() for placement in ("turn", "merged"))
    for one, other in zip(by_turn, merged, strict=True):
        assert math.fsum(one) == pytest.approx(math.fsum(other), abs=1e-9)
    on_all_tokens = on_tokens(batch, placed(batch, "turn")).tolist()
    assert [math.fsum(row) for row in on_all_tokens] == pytest.approx([math.fsum(row) for row in by_turn], abs=1e-9)
