"""The advantages of a rollout: by one rule, or by one each for thoughts and actions; and what is counted of them."""

from __future__ import annotations

import numpy as np
import pytest
from credit_samples import batches
from hypothesis import given

from turnwise.config.schema import Credit, ThoughtCredit
from turnwise.credit import CreditBatch, account, rollout_advantages, turn_means
from turnwise.data.arrays import Ragged, TrajectoryAdvantages

# Two trajectories of a group, of two turns and of one; replies of two, one and three tokens.
BATCH = CreditBatch(
    group=[5, 5],
    turn_rewards=[[0.5, 0.0], [0.0]],
    outcome=[1.0, 0.0],
    reply_lengths=[[2, 1], [3]],
    values=[[0.0, 0.5, 0.25], [0.0, 0.0, 0.5]],
    truncated=[False, False],
    bootstrap=[0.0, 0.0],
)
RLOO = Credit(estimator="rloo", options={"rewards": "merged"})


def test_a_rule_on_turns_gives_no_tokens_and_no_targets() -> None:
    found = rollout_advantages([3, 8], BATCH, RLOO)
    # 1.5 against 0
    assert found.turns.tolist() == [[1.5, 1.5], [-1.5]]
    assert (found.tokens, found.value_targets) == (None, None)
    assert found.by_trajectory() == {
        3: TrajectoryAdvantages([1.5, 1.5], None, None),
        8: TrajectoryAdvantages([-1.5], None, None),
    }


def test_a_rule_on_tokens_gives_turns_their_mean_and_a_critic_its_targets() -> None:
    found = rollout_advantages([0, 1], BATCH, Credit(estimator="gae", options={"whiten": False}))
    # What is still to come: 1.5, 1.5 and 1 in the first, 0 in the second. Minus the values.
    assert found.tokens is not None and found.value_targets is not None
    assert found.value_targets.tolist() == [pytest.approx([1.5, 1.5, 1.0]), pytest.approx([0.0, 0.0, 0.0])]
    assert found.tokens.tolist() == [pytest.approx([1.5, 1.0, 0.75]), pytest.approx([0.0, 0.0, -0.5])]
    assert found.turns.tolist() == [pytest.approx([1.25, 0.75]), pytest.approx([-0.5 / 3])]


def test_thoughts_have_the_advantage_of_their_own_rule_times_its_weight() -> None:
    of_thoughts = ThoughtCredit(estimator="rloo", options={}, weight=0.5)
    found = rollout_advantages(
        [0, 1], BATCH, RLOO.model_copy(update={"thought": of_thoughts}), Ragged.of([[1, 0], [3]], np.int64)
    )
    # Actions: 1.5 and -1.5; thoughts, by the outcome alone: 1 and -1, halved.
    assert found.tokens is not None
    assert found.tokens.tolist() == [[0.5, 1.5, 1.5], [-0.5, -0.5, -0.5]]
    assert found.turns.tolist() == [[1.0, 1.5], [-0.5]]


def test_tokens_are_shown_turn_by_turn() -> None:
    shown = TrajectoryAdvantages([1.0, 3.0], [0.5, 1.5, 3.0], None)
    assert shown.by_turn([2, 1]) == [[0.5, 1.5], [3.0]]
    assert TrajectoryAdvantages([1.0, 3.0], None, None).by_turn([2, 1]) is None


def test_the_account_of_a_batch_worked_by_hand() -> None:
    batch = CreditBatch(group=[1, 1, 2], turn_rewards=[[0.5, 0.0], [0.0], [1.0]], outcome=[1.0, 0.5, 0.0])
    found = account(batch, Ragged.of([[2.0, -1.0], [1.0], [0.0]]), sampled=5)
    # Rewards 1.5, 0.5, 1. Group 1: deviation 0.5, group 2: 0. Advantages 2, -1, 1, 0: mean 0.5, squares 5.
    assert found == {
        "groups": 2,
        "zero_variance_groups": 1,
        "left_out": 2,
        "reward": pytest.approx(1.0),
        "reward_deviation_within_groups": pytest.approx(0.25),
        "advantage_mean": pytest.approx(0.5),
        "advantage_deviation": pytest.approx(1.25**0.5),
        "advantage_maximum": 2.0,
    }
    nothing = CreditBatch(group=[], turn_rewards=[], outcome=[])
    assert account(nothing, Ragged.of([]), sampled=4) == {"groups": 0, "zero_variance_groups": 0, "left_out": 4}


@given(batches())
def test_the_mean_of_a_turn_is_that_of_its_tokens(batch: CreditBatch) -> None:
    assert batch.reply_lengths is not None
    spread = batch.on_reply_tokens(batch.turn_rewards)
    expected = [pytest.approx(row, abs=1e-12) for row in batch.turn_rewards.tolist()]
    assert turn_means(batch, spread).tolist() == expected
