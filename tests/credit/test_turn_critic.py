"""ArCHer's critic over turns, by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from credit_samples import WITH_CRITIC, close

from turnwise.credit import CreditBatch, estimate, value_targets

RAW = {"whiten": False}
# V and Q of two replies of two tokens: 0.5 and 0.4, then 0.3 and 0.2.
TWO = CreditBatch(
    group=[0], turn_rewards=[[0.1, 0.0]], outcome=[1.0], reply_lengths=[[2, 2]], values=[[0.5, 0.4, 0.3, 0.2]]
)


def test_a_reply_gets_its_value_minus_that_of_the_state_and_the_critic_learns_from_one_step() -> None:
    assert close(estimate("archer", TWO, gamma=0.9, **RAW), [[-0.1, -0.1]])
    # V of turn 1 learns 0.4; Q of turn 1: 0.1 + 0.9 x 0.3; V of turn 2: 0.2; Q of turn 2: 0 + 1
    assert close(value_targets("archer", TWO, gamma=0.9), [[0.4, 0.37, 0.2, 1.0]])


def test_lambda_lets_rewards_in_step_by_half_step() -> None:
    # after turn 2: 1 - 0.2 = 0.8;  turn 2: -0.1 + 0.5 x 0.8 = 0.3
    # after turn 1: 0.1 + 0.9 x 0.3 - 0.4 + 0.9 x 0.5 x 0.3 = 0.105;  turn 1: -0.1 + 0.5 x 0.105 = -0.0475
    assert close(estimate("archer", TWO, gamma=0.9, lam=0.5, **RAW), [[-0.0475, 0.3]])
    assert close(value_targets("archer", TWO, gamma=0.9, lam=0.5), [[0.4525, 0.505, 0.6, 1.0]])


def test_with_lambda_1_it_is_the_return_minus_the_value_of_the_state() -> None:
    assert close(estimate("archer", TWO, gamma=0.9, lam=1.0, **RAW), [[0.1 + 0.9 - 0.5, 1.0 - 0.3]])
    for batch in (TWO, WITH_CRITIC):
        assert close(
            estimate("archer", batch, gamma=0.9, lam=1.0), estimate("turn-gae", batch, gamma=0.9, lam=1.0).tolist()
        )


def test_a_cut_goes_on_from_the_value_there_and_an_end_from_0() -> None:
    cut = replace(TWO, outcome=[0.0], truncated=[True], bootstrap=[0.6])
    assert close(value_targets("archer", cut, gamma=0.9), [[0.4, 0.37, 0.2, 0.54]])
    for ended in (replace(cut, truncated=[False]), cut):
        options = {} if ended is not cut else {"bootstrap": False}
        assert close(value_targets("archer", ended, gamma=0.9, **options), [[0.4, 0.37, 0.2, 0.0]])


def test_a_reply_of_one_token_has_one_value_which_learns_as_its_end() -> None:
    short = replace(TWO, reply_lengths=[[1, 3]])
    assert close(estimate("archer", short, gamma=0.9, **RAW), [[0.0, 0.2 - 0.4]])
    assert close(value_targets("archer", short, gamma=0.9), [[0.1 + 0.9 * 0.4, 0.2, 1.0, 1.0]])


@pytest.mark.parametrize(("rewards", "last"), [("turn", 1.0), ("merged", 1.1), ("outcome", 1.0)])
def test_rewards_stand_where_they_are_placed(rewards: str, last: float) -> None:
    first = 0.1 if rewards == "turn" else 0.0
    assert close(value_targets("archer", TWO, rewards=rewards), [[0.4, first + 0.3, 0.2, last]])
