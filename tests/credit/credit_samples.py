"""Batches that several credit tests share: two worked by hand, and any that hypothesis makes."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import islice
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


NUMBERS = st.integers(-5000, 5000).map(lambda value: value / 1000)


@st.composite
def batches(draw: st.DrawFn, longest: int = 4, smallest: int = 2) -> CreditBatch:
    """Any batch with a critic, anchors, cuts and turns that are not trained, without rewards per token."""

    def rows(elements: st.SearchStrategy[Any], counts: Sequence[int]) -> list[list[Any]]:
        """A row of so many elements for each count, drawn at once, which is several times faster than one by one."""
        drawn = iter(draw(st.lists(elements, min_size=sum(counts), max_size=sum(counts))))
        return [list(islice(drawn, count)) for count in counts]

    def one_each(elements: st.SearchStrategy[Any]) -> list[Any]:
        return draw(st.lists(elements, min_size=len(turns), max_size=len(turns)))

    turns = draw(st.lists(st.integers(1, longest), min_size=smallest, max_size=10))
    lengths = rows(st.integers(1, 3), turns)
    places = rows(st.sampled_from(["here", "there", None]), [count - 1 for count in turns])
    return CreditBatch(
        group=one_each(st.integers(0, 2)),
        turn_rewards=rows(NUMBERS, turns),
        outcome=one_each(NUMBERS),
        reply_lengths=lengths,
        values=rows(NUMBERS, [sum(row) for row in lengths]),
        anchors=[["start", *row] for row in places],
        truncated=one_each(st.booleans()),
        bootstrap=one_each(NUMBERS),
        trained=rows(st.booleans(), turns),
    )


def everything_trained(batch: CreditBatch) -> CreditBatch:
    return replace(batch, trained=None)
