"""What the tests of gradients share. It loads torch, unlike `policy_samples`, which must be loaded before torch."""

from __future__ import annotations

from pathlib import Path

import torch

from turnwise.policy.learner.learner import Learner
from turnwise.policy.optimizer import NamedAdamW


def precise_learner(policy: Path) -> Learner:
    """A learner in float64, for proofs."""
    learner = Learner(policy, threads=1)
    learner.model.double()
    return learner


def gradients_of_first_step(optimizer: NamedAdamW) -> dict[str, torch.Tensor]:
    """AdamW's first moment after its first step is 0.1 x the gradient."""
    moments = optimizer._optimizer.state
    return {name: moments[parameter]["exp_avg"] / 0.1 for name, parameter in optimizer._parameters.items()}


def relative_difference(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> float:
    """The L2 norm of the difference of all gradients together, over that of the expected ones."""
    assert found.keys() == expected.keys()
    difference = torch.cat([(found[name] - expected[name]).flatten().double() for name in expected])
    return float(difference.norm() / torch.cat([expected[name].flatten().double() for name in expected]).norm())
