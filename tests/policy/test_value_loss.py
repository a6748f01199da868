"""The clipped value loss and the explained variance, by hand."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from turnwise.policy.critic.critic import clipped_value_loss, explained_variance


def test_the_clipped_value_loss_is_that_of_the_equation() -> None:
    # Old values 1, clip 0.2: values are held within 0.8 to 1.2.
    #   V 1.1, R 2: inside; (0.9)^2 / 2 = 0.405
    #   V 1.5, R 2: unclipped 0.25, clipped (1.2 - 2)^2 = 0.64; 0.32, and no gradient: it moved towards R far enough
    #   V 0.5, R 2: unclipped 2.25, clipped (0.8 - 2)^2 = 1.44; 1.125: it moved the wrong way and is pulled back
    #   V 2.5, R 2: unclipped 0.25, clipped 0.64; 0.32, no gradient: it overshot, and the clip holds it all the same
    values = torch.tensor([1.1, 1.5, 0.5, 2.5], dtype=torch.float64, requires_grad=True)
    old, returns = torch.full((4,), 1.0, dtype=torch.float64), torch.full((4,), 2.0, dtype=torch.float64)
    result = clipped_value_loss(values, old, returns, 0.2)
    assert result.loss.tolist() == pytest.approx([0.405, 0.32, 1.125, 0.32], abs=1e-12)
    assert result.clipped.tolist() == [False, True, False, True]
    result.loss.sum().backward()
    # dL/dV = V - R where nothing is clipped, else 0.
    assert values.grad is not None
    assert values.grad.tolist() == pytest.approx([-0.9, 0.0, -1.5, 0.0], abs=1e-12)


def test_without_a_clip_the_value_loss_is_half_the_squared_error() -> None:
    values = torch.tensor([1.1, 1.5, 0.5], dtype=torch.float64)
    result = clipped_value_loss(values, torch.ones(3, dtype=torch.float64), torch.full((3,), 2.0), None)
    assert result.loss.tolist() == pytest.approx([0.405, 0.125, 1.125], abs=1e-12)
    assert not result.clipped.any()


@given(st.lists(st.tuples(*[st.floats(-5, 5)] * 3), min_size=1, max_size=8), st.floats(0.01, 3))
def test_a_clip_never_makes_the_loss_smaller(triples: list[tuple[float, float, float]], clip: float) -> None:
    values, old, returns = (torch.tensor(column, dtype=torch.float64) for column in zip(*triples, strict=True))
    clipped, unclipped = (clipped_value_loss(values, old, returns, limit).loss for limit in (clip, None))
    assert bool((clipped >= unclipped).all())


def test_explained_variance_by_hand() -> None:
    # Returns 1, 2, 3, 4: variance 1.25. Errors 0, 0, 1, 1: variance 0.25. 1 - 0.25 / 1.25 = 0.8.
    assert explained_variance([1.0, 2.0, 2.0, 3.0], [1.0, 2.0, 3.0, 4.0]) == pytest.approx(0.8, abs=1e-12)
    assert explained_variance([1.0, 2.0, 3.0, 4.0], [1.0, 2.0, 3.0, 4.0]) == 1.0
    assert explained_variance([7.0] * 4, [1.0, 2.0, 3.0, 4.0]) == 0.0, "a constant explains nothing, right or wrong"
    # Errors 2 R: four times the variance.
    assert explained_variance([-1.0, -2.0, -3.0, -4.0], [1.0, 2.0, 3.0, 4.0]) == pytest.approx(-3.0, abs=1e-12)
    assert explained_variance([1.0, 2.0], [0.1, 0.1]) is None
