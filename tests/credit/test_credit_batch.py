"""A batch that contradicts itself is refused, with the field, the trajectory and what was found."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from turnwise.credit import CreditBatch, estimate
from turnwise.errors import CreditError

WHOLE = CreditBatch(
    group=[0, 0],
    turn_rewards=[[0.0, 1.0], [0.5]],
    outcome=[1.0, 0.0],
    reply_lengths=[[2, 1], [1]],
    values=[[0.1, 0.2, 0.3], [0.4]],
    anchors=[["a", None], ["a"]],
    token_rewards=[[0.0, 0.0, -0.1], [0.0]],
    truncated=[False, True],
    bootstrap=[0.0, 0.3],
    trained=[[True, False], [True]],
    named_rewards=[[1.0, 0.5], [0.0, 0.0]],
    reward_weights=[[1.0, 2.0], [1.0, 2.0]],
)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"outcome": [1.0]}, "one entry per trajectory in every field; found .*'outcome': 1"),
        ({"values": [[0.1, 0.2, 0.3]]}, "one entry per trajectory in every field; found .*'values': 1"),
        ({"turn_rewards": [[0.0, 1.0], []]}, "trajectory 1 has none: leave it out"),
        ({"reply_lengths": None}, "values and token_rewards are per reply token; found them without reply_lengths"),
        ({"reply_lengths": [[2, 1], [1, 1]]}, "reply_lengths must have one entry per turn; trajectory 1 has 1 .* 2"),
        ({"reply_lengths": [[3, 0], [1]]}, "reply_lengths must be counts of at least 1; trajectory 0 has 0"),
        ({"reply_lengths": [[1.5, 1.5], [1]]}, "reply_lengths must be counts of at least 1; trajectory 0 has 1.5"),
        ({"values": [[0.1, 0.2], [0.4]]}, "values must have one entry per reply token; trajectory 0 has 3 .* found 2"),
        ({"token_rewards": [[0.0] * 3, []]}, "token_rewards must have one entry per reply token; trajectory 1 has 1"),
        ({"anchors": [["a"], ["a"]]}, "anchors must have one entry per turn; trajectory 0 has 2 turns, found 1"),
        ({"anchors": [["a", 3], ["a"]]}, "anchors must be texts or None; trajectory 0 has 3"),
        ({"trained": [[True, True], []]}, "trained must have one entry per turn; trajectory 1 has 1 turns, found 0"),
        ({"trained": [[True, "no"], [True]]}, "trained must be true or false; trajectory 0 has 'no'"),
        ({"truncated": [False, 0.5]}, "truncated must be true or false; trajectory 1 has 0.5"),
        ({"turn_rewards": [[0.0, float("nan")], [0.5]]}, "turn_rewards must hold finite numbers; trajectory 0 has nan"),
        ({"outcome": [1.0, None]}, "outcome must hold finite numbers; trajectory 1 has None"),
        ({"values": [[0.1, "high", 0.3], [0.4]]}, "values must hold finite numbers; trajectory 0 has 'high'"),
        (
            {"named_rewards": [[1.0], [0.0]]},
            "the same named_rewards and reward_weights; found numbers of .*: .1., .*: .2.",
        ),
        ({"named_rewards": [[1.0, 0.0], [0.0]]}, "found numbers of .*'named_rewards': .1, 2."),
        (
            {"reward_weights": None},
            "the same named_rewards and reward_weights; found numbers of .'named_rewards': .2..",
        ),
        (
            {"reward_weights": [[1.0, float("nan")]] * 2},
            "reward_weights must hold finite numbers; trajectory 0 has nan",
        ),
        ({"bootstrap": [0.0, float("inf")]}, "bootstrap must hold finite numbers; trajectory 1 has inf"),
        ({"token_rewards": [[0.0, 0.0, float("-inf")], [0.0]]}, "token_rewards must hold .*; trajectory 0 has -inf"),
    ],
)
def test_a_batch_that_contradicts_itself_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(CreditError, match=message):
        replace(WHOLE, **changes)


def test_the_places_of_replies_follow_each_other() -> None:
    assert WHOLE.spans(0) == [range(0, 2), range(2, 3)]
    assert WHOLE.trained_tokens.tolist() == [[True, True, False], [True]]


def test_arrays_are_taken_and_arrays_of_double_precision_given() -> None:
    arrays = replace(
        WHOLE,
        turn_rewards=[np.array(row, dtype=np.float32) for row in WHOLE.turn_rewards],
        values=[np.array(row, dtype=np.float32) for row in WHOLE.values or ()],
        token_rewards=[np.array(row, dtype=np.float32) for row in WHOLE.token_rewards or ()],
        outcome=np.array(WHOLE.outcome),
        bootstrap=np.array([0.0, 0.3], dtype=np.float32),
        truncated=np.array([False, True]),
        trained=[np.array(row) for row in WHOLE.trained or ()],
    )
    for name in ("gae", "turn-gae", "bi-level-gae", "reinforce++", "gigpo", "grpo", "rloo"):
        found = estimate(name, arrays)
        assert found.values.dtype == np.float64
        assert found.tolist() == [pytest.approx(row, abs=1e-6) for row in estimate(name, WHOLE).tolist()]
