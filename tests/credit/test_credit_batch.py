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
        ({"outcome": [1.0]}, r"'outcome'.*\b1\b.*TW-batch-misaligned"),
        ({"values": [[0.1, 0.2, 0.3]]}, r"'values'.*\b1\b.*TW-batch-misaligned"),
        ({"turn_rewards": [[0.0, 1.0], []]}, r"\b1\b.*TW-no-turns"),
        ({"reply_lengths": None}, "token_rewards.*TW-rule-lacks-input"),
        ({"reply_lengths": [[2, 1], [1, 1]]}, r"reply_lengths.*\b1\b.*\b2\b.*TW-batch-misaligned"),
        ({"reply_lengths": [[3, 0], [1]]}, r"reply_lengths.*\b1\b.*\b0\b.*TW-batch-value"),
        ({"reply_lengths": [[1.5, 1.5], [1]]}, r"reply_lengths.*\b1\b.*\b0\b.*1\.5.*TW-batch-value"),
        ({"values": [[0.1, 0.2], [0.4]]}, r"values.*\b0\b.*\b3\b.*\b2\b.*TW-batch-misaligned"),
        ({"token_rewards": [[0.0] * 3, []]}, r"token_rewards.*\b1\b.*TW-batch-misaligned"),
        ({"anchors": [["a"], ["a"]]}, r"anchors.*\b0\b.*\b2\b.*\b1\b.*TW-batch-misaligned"),
        ({"anchors": [["a", 3], ["a"]]}, r"anchors.*None.*\b0\b.*\b3\b.*TW-batch-value"),
        ({"trained": [[True, True], []]}, r"trained.*\b1\b.*\b0\b.*TW-batch-misaligned"),
        ({"trained": [[True, "no"], [True]]}, r"trained.*\b0\b.*'no'.*TW-batch-value"),
        ({"truncated": [False, 0.5]}, r"truncated.*\b1\b.*0\.5.*TW-batch-value"),
        ({"turn_rewards": [[0.0, float("nan")], [0.5]]}, r"turn_rewards.*\b0\b.*TW-batch-value"),
        ({"outcome": [1.0, None]}, r"outcome.*\b1\b.*None.*TW-batch-value"),
        ({"values": [[0.1, "high", 0.3], [0.4]]}, r"values.*\b0\b.*'high'.*TW-batch-value"),
        (
            {"named_rewards": [[1.0], [0.0]]},
            r"named_rewards.*reward_weights.*\b1\b.*\b2\b.*TW-batch-names-differ",
        ),
        ({"named_rewards": [[1.0, 0.0], [0.0]]}, r"'named_rewards'.*\b1\b.*\b2\b.*TW-batch-names-differ"),
        (
            {"reward_weights": None},
            r"named_rewards.*reward_weights.*'named_rewards'.*\b2\b.*TW-batch-names-differ",
        ),
        (
            {"reward_weights": [[1.0, float("nan")]] * 2},
            r"reward_weights.*\b0\b.*TW-batch-value",
        ),
        ({"bootstrap": [0.0, float("inf")]}, r"bootstrap.*\b1\b.*TW-batch-value"),
        ({"token_rewards": [[0.0, 0.0, float("-inf")], [0.0]]}, r"token_rewards.*\b0\b.*-inf.*TW-batch-value"),
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
