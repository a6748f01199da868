"""The clipped value loss and the explained variance of a critic, as pure functions.

PPO's clipped value loss (Schulman's code in OpenAI Baselines; described by Huang et al. 2022, "The 37 Implementation
Details of Proximal Policy Optimization", detail 9; the PPO paper, arXiv 1707.06347, has no clip here), per token t:

    V'_t = V_old,t + clip(V_t - V_old,t, -c, c)
    L_t  = 1/2 max((V_t - R_t)^2, (V'_t - R_t)^2)

V_old: the values that the returns R were computed with. The maximum stops the gradient of a value that has moved from
V_old towards R by more than c; one that moved away from R is still pulled back. Without a clip L is half the squared
error. Explained variance: 1 - Var(R - V) / Var(R). 1 is a perfect critic, 0 one that predicts a constant, and below 0
it is worse than a constant.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class ValueLoss:
    """A loss per token, and where the clip stopped its gradient. Both have the inputs' shape."""

    loss: torch.Tensor
    clipped: torch.Tensor
    """Boolean: true where the clip stopped the gradient."""


def clipped_value_loss(
    values: torch.Tensor, old_values: torch.Tensor, returns: torch.Tensor, clip: float | None
) -> ValueLoss:
    """PPO's clipped value loss per token; see the head of this file. Only `values` receives a gradient."""
    error = (values - returns).square()
    if clip is None:
        return ValueLoss(0.5 * error, torch.zeros_like(error, dtype=torch.bool))
    near = old_values + (values - old_values).clamp(-clip, clip)
    clipped_error = (near - returns).square()
    return ValueLoss(0.5 * torch.maximum(error, clipped_error), clipped_error.detach() > error.detach())


def explained_variance(values: Sequence[float], returns: Sequence[float]) -> float | None:
    """The share of the returns' variance that the values explain; None where all returns are equal."""
    variance = _variance(returns)
    if variance == 0.0:
        return None
    return 1.0 - _variance([of_return - value for value, of_return in zip(values, returns, strict=True)]) / variance


def _variance(numbers: Sequence[float]) -> float:
    """The population variance; exactly 0 where all numbers are equal."""
    if all(number == numbers[0] for number in numbers):
        return 0.0
    mean = math.fsum(numbers) / len(numbers)
    return math.fsum((number - mean) ** 2 for number in numbers) / len(numbers)
