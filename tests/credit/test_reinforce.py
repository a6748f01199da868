"""REINFORCE++, by hand."""

import math
from dataclasses import replace

import pytest
from credit_samples import UNEQUAL, close

from turnwise.credit import CreditBatch, estimate

# Reply mask 110011: two replies of two tokens with two observation tokens between, and reward 1 at the end.
MASKED = CreditBatch(group=[0], turn_rewards=[[0.0, 0.0]], outcome=[1.0], reply_lengths=[[2, 2]])


def test_a_return_passes_through_observation_tokens() -> None:
    assert estimate("reinforce++", MASKED, whiten=False).tolist() == [[1.0, 1.0, 1.0, 1.0]]
    assert estimate("reinforce++", MASKED, gamma=0.5, whiten=False).tolist() == [[0.125, 0.25, 0.5, 1.0]]


@pytest.mark.parametrize(
    ("rewards", "expected"),
    [("turn", [1.5, 1.5, 1.0, 1.0]), ("merged", [1.5] * 4), ("outcome", [1.0] * 4)],
)
def test_rewards_stand_where_they_are_placed(rewards: str, expected: list[float]) -> None:
    batch = replace(MASKED, turn_rewards=[[0.5, 0.0]])
    assert estimate("reinforce++", batch, rewards=rewards, whiten=False).tolist() == [expected]


def test_rewards_per_token_are_part_of_the_return() -> None:
    batch = replace(MASKED, token_rewards=[[-0.1, -0.2, -0.3, -0.4]])
    assert close(estimate("reinforce++", batch, whiten=False), [[0.0, 0.1, 0.3, 0.6]])


def test_whitening_is_over_the_reply_tokens_of_the_batch() -> None:
    # returns 1, 1 and 0: mean 2/3, squares 1/9 + 1/9 + 4/9 = 2/3, over 2: deviation sqrt(1/3)
    batch = CreditBatch(group=[0, 1], turn_rewards=[[0.0], [0.0]], outcome=[1.0, 0.0], reply_lengths=[[2], [1]])
    expected = [[1 / 3 * math.sqrt(3), 1 / 3 * math.sqrt(3)], [-2 / 3 * math.sqrt(3)]]
    assert close(estimate("reinforce++", batch), expected, tolerance=1e-7)


def test_a_turn_that_is_not_trained_is_left_out_of_whitening_but_its_reward_counts() -> None:
    # returns 1, 1 and 0 as above, and a turn with return 5 whose reward the turn before it sees: 0 + 1
    batch = CreditBatch(
        group=[0, 1],
        turn_rewards=[[0.0, 1.0], [0.0]],
        outcome=[0.0, 0.0],
        reply_lengths=[[2, 4], [1]],
        trained=[[True, False], [True]],
    )
    third = math.sqrt(3) / 3
    assert close(estimate("reinforce++", batch), [[third, third, 0.0, 0.0, 0.0, 0.0], [-2 * third]], tolerance=1e-7)


def test_equal_returns_are_whitened_to_zero() -> None:
    assert estimate("reinforce++", MASKED).tolist() == [[0.0] * 4]


def test_the_baseline_form_subtracts_the_mean_of_the_group() -> None:
    # outcomes 1, 0, 0.5: differences 0.5, -0.5, 0
    batch = replace(UNEQUAL, reply_lengths=[[1, 1], [1, 1], [1]])
    assert close(estimate("reinforce++-baseline", batch, whiten=False), [[0.5, 0.5], [-0.5, -0.5], [0.0]])
    assert close(estimate("reinforce++-baseline", batch, whiten=False, gamma=0.5), [[0.25, 0.5], [-0.25, -0.5], [0.0]])
    # merged 2.5, 0.3, 0.5: mean 1.1
    assert close(
        estimate("reinforce++-baseline", batch, whiten=False, rewards="merged"), [[1.4, 1.4], [-0.8, -0.8], [-0.6]]
    )


def test_the_baseline_form_is_whitened_over_tokens() -> None:
    # differences 0.5, 0.5, -0.5, -0.5, 0: mean 0, squares sum 1, over 4: deviation 0.5
    batch = replace(UNEQUAL, reply_lengths=[[1, 1], [1, 1], [1]])
    assert close(estimate("reinforce++-baseline", batch), [[1.0, 1.0], [-1.0, -1.0], [0.0]], tolerance=1e-7)


def test_the_mean_of_the_group_does_not_hold_rewards_per_token() -> None:
    batch = replace(UNEQUAL, reply_lengths=[[1, 1], [1, 1], [1]], token_rewards=[[-0.1, -0.1], [0.0, 0.0], [-0.2]])
    assert close(estimate("reinforce++-baseline", batch, whiten=False), [[0.3, 0.4], [-0.5, -0.5], [-0.2]])


def test_a_group_of_one_has_no_baseline() -> None:
    with pytest.warns(UserWarning, match="no baseline"):
        assert estimate("reinforce++-baseline", MASKED).tolist() == [[0.0] * 4]
