"""REINFORCE on turns, by hand."""

import pytest
from credit_samples import close

from turnwise.credit import CreditBatch, estimate, require_options
from turnwise.errors import CreditError

# With gamma 0.5 the returns are 1 and 2; 0.5; 3.
BATCH = CreditBatch(group=[0, 0, 1], turn_rewards=[[0.0, 1.0], [0.5], [3.0]], outcome=[1.0, 0.0, 0.0])


def test_a_turn_gets_its_discounted_return() -> None:
    assert estimate("turn-reinforce", BATCH, gamma=0.5, over="none").tolist() == [[1.0, 2.0], [0.5], [3.0]]
    assert estimate("turn-reinforce", BATCH, gamma=0.5, over="none", rewards="outcome")[0].tolist() == [0.5, 1.0]
    assert estimate("turn-reinforce", BATCH, gamma=0.5, over="none", rewards="merged")[0].tolist() == [1.0, 2.0]


def test_turns_are_compared_with_those_of_their_group_or_of_the_batch() -> None:
    # group 0: 1, 2, 0.5, mean 7/6, deviations squared 1/36 + 25/36 + 16/36 = 42/36 over 2: sqrt(7/12)
    found = estimate("turn-reinforce", BATCH, gamma=0.5, deviation="none")
    assert close(found, [[-1 / 6, 5 / 6], [-2 / 3], [0.0]])
    found = estimate("turn-reinforce", BATCH, gamma=0.5, epsilon=0.0)
    assert close(found, [[-1 / 6 / (7 / 12) ** 0.5, 5 / 6 / (7 / 12) ** 0.5], [-2 / 3 / (7 / 12) ** 0.5], [0.0]])
    # the batch: 1, 2, 0.5, 3, mean 1.625
    found = estimate("turn-reinforce", BATCH, gamma=0.5, over="batch", deviation="none")
    assert close(found, [[-0.625, 0.375], [-1.125], [1.375]])


def test_a_deviation_belongs_to_what_is_compared() -> None:
    with pytest.raises(CreditError, match="deviation belongs to turn-reinforce's over group and batch; found it with"):
        require_options("turn-reinforce", {"over": "none", "deviation": "none"})
