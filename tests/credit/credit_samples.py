"""Batches that several credit tests share: two worked by hand, and any that hypothesis makes."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import strategies as st

from turnwise.credit import CreditBatch

# Four trajectories of one task: searched and right, searched and wrong, searched and right, answered at once and wrong.
#   turn sums 0.7, 0.2, 0.7, 0.0     mean 0.4, deviations 0.3, -0.2, 0.3, -0.4, squares sum 0.38
#   outcomes  1.5, 0.0, 1.5, 0.0     mean 0.75, deviations +-0.75, squares sum 2.25
SEARCHES = CreditBatch(
    group=[7, 7, 7, 7], turn_rewards=[[0.7, 0.0], [0.2, 0.0], [0.7, 0.0], [0.0]], outcome=[1.5, 0.0, 1.5, 0.0]
)
# Three trajectories of one task, of two turns, two turns and one.
#   merged rewards 2.5, 0.3, 0.5
UNEQUAL = CreditBatch(group=[0, 0, 0], turn_rewards=[[0.5, 1.0], [0.1, 0.2], [0.0]], outcome=[1.0, 0.0, 0.5])
# One trajectory with a critic: replies of two tokens and of one.
WITH_CRITIC = CreditBatch(
    group=[0], turn_rewards=[[0.3, 0.0]], outcome=[1.0], reply_lengths=[[2, 1]], values=[[0.5, 0.4, 0.2]]
)


def close(found: Iterable[Sequence[float]], expected: Iterable[Sequence[float]], tolerance: float = 1e-9) -> bool:
    return [list(row) for row in found] == [pytest.approx(list(row), abs=tolerance) for row in expected]


ROUND = (0.0, 1.0, -1.0, 0.5, 5.0, -5.0)
"""Every fourth number of a batch is one of these, so that there are equal ones and zeros."""


def a_number(read: Iterator[int]) -> float:
    """A multiple of 0.001 from -5 to 5, of two bytes."""
    first, second = next(read), next(read)
    return ROUND[second % len(ROUND)] if first < 64 else ((first * 256 + second) % 10_001 - 5000) / 1000


@st.composite
def batches(draw: st.DrawFn, longest: int = 4, smallest: int = 2) -> CreditBatch:
    """Any batch with a critic, anchors, cuts and turns that are not trained, without rewards per token.

    It is read from bytes that are drawn at once, which is several times faster than to draw number by number.
    """
    turns = [1 + byte % longest for byte in draw(st.binary(min_size=smallest, max_size=10))]
    most = 15 * len(turns) + 29 * sum(turns)  # of a trajectory and of a turn: a reply has at most three tokens
    read = iter(draw(st.binary(min_size=most, max_size=most)))

    def rows(element: Callable[[], Any], counts: Sequence[int]) -> list[list[Any]]:
        return [[element() for _ in range(count)] for count in counts]

    def number() -> float:
        return a_number(read)

    def flag() -> bool:
        return next(read) % 2 == 1

    def one_each(element: Callable[[], Any]) -> list[Any]:
        return [element() for _ in turns]

    lengths = rows(lambda: 1 + next(read) % 3, turns)
    return CreditBatch(
        group=one_each(lambda: next(read) % 3),
        turn_rewards=rows(number, turns),
        outcome=one_each(number),
        reply_lengths=lengths,
        values=rows(number, [sum(row) for row in lengths]),
        anchors=[
            ["start", *row]
            for row in rows(lambda: (None, "here", "there")[next(read) % 3], [count - 1 for count in turns])
        ],
        truncated=one_each(flag),
        bootstrap=one_each(number),
        trained=rows(flag, turns),
        named_rewards=rows(number, [2] * len(turns)),
        reward_weights=[[1.0, -0.5]] * len(turns),
        greedy_rewards=rows(number, [2] * len(turns)),
        score_norms=rows(lambda: abs(number()), [sum(row) for row in lengths]),
        trees=one_each(lambda: next(read) % 2),
        nodes=[[10 * index + turn for turn in range(count)] for index, count in enumerate(turns)],
        surprisals=rows(lambda: abs(number()), turns),
        hindsight=rows(number, [sum(row) for row in lengths]),
        answer_scores=rows(lambda: -abs(number()), turns),
        start_answer_scores=rows(lambda: -abs(number()), turns),
    )


def everything_trained(batch: CreditBatch) -> CreditBatch:
    return replace(batch, trained=None)
