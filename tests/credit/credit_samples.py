"""Batches that several credit tests share: two worked by hand, and any that hypothesis makes."""

from dataclasses import replace

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


def close(found: list[list[float]], expected: list[list[float]], tolerance: float = 1e-9) -> bool:
    return found == [pytest.approx(row, abs=tolerance) for row in expected]


@st.composite
def batches(draw: st.DrawFn, longest: int = 4, smallest: int = 2) -> CreditBatch:
    """Any batch with a critic, anchors, cuts and turns that are not trained, without rewards per token."""
    number = st.floats(-5, 5).map(lambda value: round(value, 3))
    turns = draw(st.lists(st.integers(1, longest), min_size=smallest, max_size=10))
    lengths = [draw(st.lists(st.integers(1, 3), min_size=count, max_size=count)) for count in turns]
    return CreditBatch(
        group=[draw(st.integers(0, 2)) for _ in turns],
        turn_rewards=[[draw(number) for _ in range(count)] for count in turns],
        outcome=[draw(number) for _ in turns],
        reply_lengths=lengths,
        values=[[draw(number) for _ in range(sum(row))] for row in lengths],
        anchors=[
            ["start"] + [draw(st.sampled_from(["here", "there", None])) for _ in range(count - 1)] for count in turns
        ],
        truncated=[draw(st.booleans()) for _ in turns],
        bootstrap=[draw(number) for _ in turns],
        trained=[[draw(st.booleans()) for _ in range(count)] for count in turns],
    )


def everything_trained(batch: CreditBatch) -> CreditBatch:
    return replace(batch, trained=None)
