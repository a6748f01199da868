"""The parts of a reply have credit of their own, by hand."""

import numpy as np
import pytest
from credit_samples import SEARCHES, close

from turnwise.credit import CreditBatch, estimate
from turnwise.credit.parts import divided
from turnwise.data.arrays import Ragged
from turnwise.errors import CreditError

BATCH = CreditBatch(group=[0, 0], turn_rewards=[[0.0, 0.0], [0.0]], outcome=[0.0, 0.0], reply_lengths=[[3, 2], [2]])
ACTION = Ragged.of([[1.0, 1.0, 1.0, 2.0, 2.0], [-3.0, -3.0]])
THOUGHT = Ragged.of([[10.0, 10.0, 10.0, 20.0, 20.0], [-30.0, -30.0]])


def parts(action: Ragged, thought: Ragged, thought_lengths: list[list[int]], weight: float) -> list[list[float]]:
    return divided(BATCH, action, thought, Ragged.of(thought_lengths, np.int64), weight).tolist()


def test_a_turn_gives_each_of_its_reply_tokens_its_advantage() -> None:
    assert BATCH.on_reply_tokens(Ragged.of([[1.0, 2.0], [-3.0]])) == ACTION


def test_the_first_tokens_of_each_reply_have_the_weighted_credit_of_the_thought() -> None:
    assert parts(ACTION, THOUGHT, [[2, 0], [2]], 0.5) == [[5.0, 5.0, 1.0, 2.0, 2.0], [-15.0, -15.0]]


def test_a_thought_without_weight_is_not_trained() -> None:
    assert parts(ACTION, ACTION, [[2, 1], [1]], 0.0) == [[0.0, 0.0, 1.0, 0.0, 2.0], [0.0, -3.0]]


def test_without_thoughts_and_with_the_same_credit_it_is_the_whole_replys() -> None:
    assert parts(ACTION, THOUGHT, [[0, 0], [0]], 0.5) == ACTION.tolist()
    assert parts(ACTION, ACTION, [[2, 1], [1]], 1.0) == ACTION.tolist()


def test_the_call_answers_for_its_turn_and_the_thought_for_the_outcome() -> None:
    # The outcomes of SEARCHES are 1.5, 0, 1.5, 0, with the mean 0.75; its last trajectory has one turn.
    searches = CreditBatch(
        group=SEARCHES.group,
        turn_rewards=SEARCHES.turn_rewards,
        outcome=SEARCHES.outcome,
        reply_lengths=[[2] * turns for turns in SEARCHES.turns],
    )
    calls = searches.on_reply_tokens(estimate("mt-grpo", SEARCHES, rule="paper", outcome_coefficient=0.0))
    thoughts = searches.on_reply_tokens(estimate("grpo", SEARCHES, deviation="none"))
    one_token = Ragged.of(([1] * turns for turns in SEARCHES.turns), np.int64)
    found = divided(searches, calls, thoughts, one_token, 1.0).tolist()
    assert close([row[0::2] for row in found], [[0.75, 0.75], [-0.75, -0.75], [0.75, 0.75], [-0.75]])
    assert [row[1::2] for row in found] == [row[1::2] for row in calls.tolist()]


def test_a_thought_longer_than_its_reply_is_refused() -> None:
    with pytest.raises(CreditError, match=r"\b2\b.*\b3\b.*TW-long-thought"):
        parts(ACTION, THOUGHT, [[1, 1], [3]], 1.0)
