"""The optimal token baseline, by hand."""

from dataclasses import replace

import pytest
from credit_samples import close

from turnwise.credit import CreditBatch, estimate

# One group: replies of two tokens and one, of two, and of one. What was risked up to each token:
#   0.5, 1.0, 1.5      0.25, 1.0      0.5
# Returns are the outcomes 1, 0, 2 at every token.
BATCH = CreditBatch(
    group=[0, 0, 0],
    turn_rewards=[[0.0, 0.0], [0.0], [0.0]],
    outcome=[1.0, 0.0, 2.0],
    reply_lengths=[[2, 1], [2], [1]],
    score_norms=[[0.5, 0.5, 0.5], [0.25, 0.75], [0.5]],
)


def test_returns_are_compared_with_their_mean_weighted_by_what_was_risked() -> None:
    # Token 1: (0.5 + 0 + 1) / 1.25 = 1.2; token 2: (1 + 0) / 2 = 0.5; token 3: alone.
    assert close(estimate("optimal-token-baseline", BATCH), [[-0.2, 0.5, 0.0], [-1.2, -0.5], [0.8]])
    assert close(estimate("optimal-token-baseline", BATCH, alone="return").select([0]), [[-0.2, 0.5, 1.0]])
    risked_less = replace(BATCH, score_norms=[[0.05, 0.05, 0.05], [0.025, 0.075], [0.05]])  # the weights' scale is free
    assert close(estimate("optimal-token-baseline", risked_less), [[-0.2, 0.5, 0.0], [-1.2, -0.5], [0.8]])


def test_steps_may_be_turns() -> None:
    # Turn 1, risked at its end: 1.0, 1.0, 0.5: (1 + 0 + 1) / 2.5 = 0.8; turn 2 is reached by one.
    found = estimate("optimal-token-baseline", BATCH, steps="turn")
    assert close(found, [[0.2, 0.2, 0.0], [-0.8, -0.8], [1.2]])


def test_a_turns_reward_counts_up_to_its_last_token() -> None:
    paid = replace(BATCH, turn_rewards=[[1.0, 0.0], [0.0], [0.0]])
    # Returns of the first: 2, 2, 1. Token 1: (1 + 0 + 1) / 1.25 = 1.6; token 2: 2 / 2 = 1.
    found = estimate("optimal-token-baseline", paid, rewards="turn")
    assert close(found, [[0.4, 1.0, 0.0], [-1.6, -1.0], [0.4]])


def test_where_nothing_was_risked_the_mean_is_the_plain_one() -> None:
    certain = replace(BATCH, score_norms=[[0.0] * 3, [0.0] * 2, [0.0]])
    assert close(estimate("optimal-token-baseline", certain), [[0.0, 0.5, 0.0], [-1.0, -0.5], [1.0]])


def test_a_group_of_one_has_no_signal_and_a_note() -> None:
    with pytest.warns(UserWarning, match="no other to be compared with"):
        found = estimate("optimal-token-baseline", replace(BATCH, group=[0, 0, 1]))
    # The other two: (0.5 + 0) / 0.75 = 2/3; token 2: (1 + 0) / 2 = 0.5.
    assert close(found, [[1 / 3, 0.5, 0.0], [-2 / 3, -0.5], [0.0]])
