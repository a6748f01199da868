"""The parts of a reply have credit of their own, by hand."""

import pytest
from credit_samples import SEARCHES, close

from turnwise.credit import estimate
from turnwise.credit.parts import divided, on_reply_tokens
from turnwise.errors import CreditError

LENGTHS = [[3, 2], [2]]
ACTION = [[1.0, 1.0, 1.0, 2.0, 2.0], [-3.0, -3.0]]
THOUGHT = [[10.0, 10.0, 10.0, 20.0, 20.0], [-30.0, -30.0]]


def test_a_turn_gives_each_of_its_reply_tokens_its_advantage() -> None:
    assert on_reply_tokens([[1.0, 2.0], [-3.0]], LENGTHS) == ACTION


def test_the_first_tokens_of_each_reply_have_the_weighted_credit_of_the_thought() -> None:
    assert divided(ACTION, THOUGHT, LENGTHS, [[2, 0], [2]], 0.5) == [[5.0, 5.0, 1.0, 2.0, 2.0], [-15.0, -15.0]]


def test_a_thought_without_weight_is_not_trained() -> None:
    assert divided(ACTION, ACTION, LENGTHS, [[2, 1], [1]], 0.0) == [[0.0, 0.0, 1.0, 0.0, 2.0], [0.0, -3.0]]


def test_without_thoughts_and_with_the_same_credit_it_is_the_whole_replys() -> None:
    assert divided(ACTION, THOUGHT, LENGTHS, [[0, 0], [0]], 0.5) == ACTION
    assert divided(ACTION, ACTION, LENGTHS, [[2, 1], [1]], 1.0) == ACTION


def test_the_call_answers_for_its_turn_and_the_thought_for_the_outcome() -> None:
    # The outcomes of SEARCHES are 1.5, 0, 1.5, 0, with the mean 0.75; its last trajectory has one turn.
    lengths = [[2] * len(turns) for turns in SEARCHES.turn_rewards]
    calls = on_reply_tokens(estimate("mt-grpo", SEARCHES, rule="paper", outcome_coefficient=0.0), lengths)
    thoughts = on_reply_tokens(estimate("grpo", SEARCHES, deviation="none"), lengths)
    found = divided(calls, thoughts, lengths, [[1] * len(turns) for turns in SEARCHES.turn_rewards], 1.0)
    assert close([row[0::2] for row in found], [[0.75, 0.75], [-0.75, -0.75], [0.75, 0.75], [-0.75]])
    assert [row[1::2] for row in found] == [row[1::2] for row in calls]


def test_a_thought_longer_than_its_reply_is_refused() -> None:
    with pytest.raises(CreditError, match="a part of its reply of 2 tokens; found 3"):
        divided(ACTION, THOUGHT, LENGTHS, [[1, 1], [3]], 1.0)
