"""Returns of turns, by hand: REINFORCE, information gain and TRACE."""

import math
from dataclasses import replace

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


# What the warm start lacks of the right answer, offset 0.1 included: 4, 2, 1, 2 nats; and in the other episode 3 and 3.
BELIEVED = CreditBatch(
    group=[0, 0],
    turn_rewards=[[0.0, 0.0, 0.5, 0.0], [0.0, 0.0]],
    outcome=[1.0, 0.0],
    start_answer_scores=[[-3.9, -1.9, -0.9, -1.9], [-2.9, -2.9]],
)
HALVED = math.log(2)


def test_trace_pays_a_turn_for_the_share_of_the_lack_that_it_and_the_next_ones_close() -> None:
    # Gains log 2, log 2, -log 2. Of two with gamma 0.5, over 1.5: 1, 0.5 / 1.5, and the last alone: -1.
    found = estimate("trace", BELIEVED, horizon=2, gamma=0.5, terminal=0.0, coefficient=1.0, epsilon=0.0)
    assert close(found, [[1 + HALVED, 1 + HALVED / 3, 1 - HALVED, 1.0], [-1.0, -1.0]])


def test_trace_ties_the_turns_whose_window_reaches_the_end_to_the_outcome() -> None:
    found = estimate("trace", BELIEVED, horizon=2, gamma=0.5, coefficient=0.2, epsilon=0.0)
    # 2 x 0.5^2 and 2 x 0.5 of the outcome, which is 1; in the other episode its only gain is 0.
    second, third = 1 + 0.2 * (HALVED / 3 + 0.5), 1 + 0.2 * (-HALVED + 1.0)
    assert close(found, [[1 + 0.2 * HALVED, second, third, 1.0], [-1.0 - 0.2, -1.0]])
    # By default three turns, each 0.8 of the one before: (1 + 0.8 - 0.64) / 2.44 in the first, 0.2 / 1.8 in the second.
    of_default = estimate("trace", BELIEVED, epsilon=0.0).tolist()[0]
    assert of_default == pytest.approx(
        [
            1 + 0.2 * (HALVED * 1.16 / 2.44 + 2 * 0.512),
            1 + 0.2 * (HALVED * 0.2 / 1.8 + 2 * 0.64),
            1 + 0.2 * (-HALVED + 2 * 0.8),
            1.0,
        ]
    )


def test_trace_of_a_group_that_earns_alike_is_what_the_warm_start_comes_to_believe() -> None:
    alike = replace(BELIEVED, outcome=[1.0, 1.0])
    assert close(estimate("trace", alike, horizon=1, coefficient=1.0), [[HALVED, HALVED, -HALVED, 0.0], [0.0, 0.0]])
    merged = estimate("trace", BELIEVED, rewards="merged", coefficient=0.0, deviation="none")
    assert close(merged, [[0.75] * 4, [-0.75] * 2])


def test_all_episodes_of_one_turn_have_no_gains() -> None:
    single = CreditBatch(group=[0, 0], turn_rewards=[[0.0], [0.0]], outcome=[1.0, 0.0], answer_scores=[[-1.0], [-1.0]])
    for pooled in ("joint", "apart"):
        assert close(estimate("information-gain", single, pooled=pooled, deviation="none"), [[0.5], [-0.5]])
