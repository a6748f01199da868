"""Critics over turns, ArCHer's and SWEET-RL's, by hand."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import permutations

import pytest
import torch
from credit_samples import WITH_CRITIC, batches, close
from hypothesis import given, settings

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


# Advantages: -0.1 and 0.1; and (0.6 + 0.2) / 2 - 0.3 = 0.1. The first has earned 1.1, the second 0.5.
PAIR = CreditBatch(
    group=[0, 0],
    turn_rewards=[[0.1, 0.0], [0.5]],
    outcome=[1.0, 0.0],
    reply_lengths=[[2, 2], [3]],
    values=[[0.5, 0.4, 0.1, 0.2], [0.3, 0.6, 0.2]],
)


def test_sweet_rl_asks_what_the_critic_adds_along_a_reply() -> None:
    assert close(estimate("sweet-rl", PAIR, **RAW), [[-0.1, 0.1], [0.1]])
    one_token = replace(PAIR, reply_lengths=[[1, 3], [3]])
    assert close(estimate("sweet-rl", one_token, **RAW), [[0.0, (0.1 + 0.2) / 2 - 0.4], [0.1]])


def test_sweet_rl_moves_the_critic_towards_telling_the_better_episode() -> None:
    # S: 0 and 0.1, so that the better one is held for the worse: sigma(0.1 - 0).
    mistaken = 1 / (1 + math.exp(-0.1))
    first = [0.5 - mistaken, 0.4 + mistaken, 0.1 - mistaken, 0.2 + mistaken]
    assert close(value_targets("sweet-rl", PAIR), [first, [0.3 + mistaken, 0.6 - mistaken / 2, 0.2 - mistaken / 2]])
    # By outcome of 0 and 1 the second is the better one, and with beta 2 the model is the surer: sigma(-0.2).
    other = replace(PAIR, outcome=[0.0, 1.0])
    surer = 2 / (1 + math.exp(0.2))
    assert close(
        value_targets("sweet-rl", other, beta=2.0, rewards="outcome"),
        [[0.5 + surer, 0.4 - surer, 0.1 + surer, 0.2 - surer], [0.3 - surer, 0.6 + surer / 2, 0.2 + surer / 2]],
    )


def test_sweet_rl_teaches_nothing_where_nobody_has_earned_more() -> None:
    alike = replace(PAIR, outcome=[0.4, 0.0])  # 0.5 each
    assert value_targets("sweet-rl", alike).tolist() == [[0.5, 0.4, 0.1, 0.2], [0.3, 0.6, 0.2]]
    alone = replace(PAIR, group=[0, 1])
    assert value_targets("sweet-rl", alone).tolist() == alike.values.tolist()


@settings(max_examples=30, deadline=None)
@given(batch=batches())
def test_the_targets_of_sweet_rl_descend_its_loss(batch: CreditBatch) -> None:
    """Against the derivative that autograd finds of the loss as the paper writes it, pair by pair."""
    values = torch.tensor(batch.values.values, requires_grad=True)
    sums, place = [], 0
    for row in batch.reply_lengths.tolist():
        total = torch.zeros((), dtype=torch.float64)
        for length in row:
            reply = values[place : place + length]
            total = total + (reply[1:].mean() - reply[0] if length > 1 else 0.0)
            place += length
        sums.append(0.5 * total)
    earned = [sum(row) + outcome for row, outcome in zip(batch.turn_rewards.tolist(), batch.outcome, strict=True)]
    loss = sum(values) * 0.0
    for i, j in permutations(range(len(batch)), 2):
        if batch.group[i] == batch.group[j] and earned[i] > earned[j] + 1e-9:
            loss = loss - torch.nn.functional.logsigmoid(sums[i] - sums[j]) / (batch.group.count(batch.group[i]) - 1)
    (gradient,) = torch.autograd.grad(loss, values)
    found = value_targets("sweet-rl", batch, beta=0.5)
    assert found.values == pytest.approx(batch.values.values - gradient.numpy(), abs=1e-9)
