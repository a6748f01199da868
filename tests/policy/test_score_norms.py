"""Squared norms of scores from log-probabilities at two temperatures are those of the whole distribution."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from turnwise.policy.score_norms import score_norms


@pytest.mark.parametrize("temperature", [0.7, 1.0, 1.5])
def test_the_norm_is_that_of_the_gradient_in_the_logits(temperature: float) -> None:
    random = torch.Generator().manual_seed(3)
    logits = 3.0 * torch.randn(20, 50, generator=random, dtype=torch.float64)
    sampled = torch.randint(0, 50, (20,), generator=random)

    def log_probability(at: float) -> torch.Tensor:
        return (logits / at).log_softmax(dim=-1).gather(-1, sampled.unsqueeze(-1)).squeeze(-1)

    scores = torch.nn.functional.one_hot(sampled, 50) - (logits / temperature).softmax(dim=-1)
    expected = (scores**2).sum(dim=-1)
    found = score_norms(log_probability(temperature).numpy(), log_probability(temperature / 2).numpy())
    assert found == pytest.approx(expected.numpy(), rel=1e-9)


def test_a_norm_is_held_within_what_it_can_be() -> None:
    # p = 0.5; from q = 1 the sum of squares is at least p^2, and at most 1 however small q is.
    found = score_norms(np.log([0.5, 0.5]), np.array([0.5, -9.0]))
    assert found == pytest.approx([0.25, 1.0])
