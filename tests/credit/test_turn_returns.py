"""Returns of turns, by hand: REINFORCE, and information gain."""

import math

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
    with pytest.raises(CreditError, match=r"deviation.*TW-unread-option"):
        require_options("turn-reinforce", {"over": "none", "deviation": "none"})


# Probabilities of the right answer before each turn: 0.1, 0.5 and 0.2, 0.2, 0.6; outcomes 1 and 0.
ANSWERED = CreditBatch(
    group=[0, 0],
    turn_rewards=[[0.0, 0.0], [0.0, 0.5, 0.0]],
    outcome=[1.0, 0.0],
    answer_scores=[[math.log(0.1), math.log(0.5)], [math.log(0.2), math.log(0.2), math.log(0.6)]],
)


def test_a_turn_is_paid_what_it_adds_to_the_probability_of_the_right_answer() -> None:
    found = estimate("information-gain", ANSWERED, deviation="none", gamma=0.5)
    # Gains 0.4 and 0.0, 0.4, then the outcomes 1 and 0: their mean is 0.36.
    # The first: 0.04 + 0.5 * 0.64; the second: -0.36 + 0.5 * (0.04 - 0.5 * 0.36).
    assert close(found, [[0.36, 0.64], [-0.43, -0.14, -0.36]])


def test_gains_may_be_normalised_apart_from_outcomes_and_be_of_log_probabilities() -> None:
    found = estimate("information-gain", ANSWERED, pooled="apart", epsilon=0.0)
    # Gains 0.4, 0.0, 0.4: mean 0.8 / 3, unbiased deviation 0.4 / sqrt(3); outcomes: 1 / sqrt(2) and its negative.
    high, low, last = 1 / math.sqrt(3), -2 / math.sqrt(3), 1 / math.sqrt(2)
    assert close(found, [[high + last, last], [low + high - last, high - last, -last]])
    logs = estimate("information-gain", ANSWERED, gain="log-probability", deviation="none", pooled="apart")
    gains = [math.log(5), 0.0, math.log(3)]
    mean = sum(gains) / 3
    of_second = [gains[1] + gains[2] - 2 * mean - 0.5, gains[2] - mean - 0.5, -0.5]
    assert close(logs, [[gains[0] - mean + 0.5, 0.5], of_second])


def test_without_gains_the_outcome_alone_is_compared() -> None:
    found = estimate("information-gain", ANSWERED, coefficient=0.0, pooled="apart", rewards="merged", deviation="none")
    assert close(found, [[0.25, 0.25], [-0.25, -0.25, -0.25]])


def test_all_episodes_of_one_turn_have_no_gains() -> None:
    single = CreditBatch(group=[0, 0], turn_rewards=[[0.0], [0.0]], outcome=[1.0, 0.0], answer_scores=[[-1.0], [-1.0]])
    for pooled in ("joint", "apart"):
        assert close(estimate("information-gain", single, pooled=pooled, deviation="none"), [[0.5], [-0.5]])
