"""Policy-gradient losses as pure functions of tensors.

PPO's clipped surrogate (Schulman et al. 2017, arXiv 1707.06347, equation 7), per reply token t:

    r_t  = exp(log pi(t) - log mu(t))            mu: the behaviour policy, whose log-probabilities the engine reported
    L_t  = -min(r_t A_t, clip(r_t, 1 - low, 1 + high) A_t)

What differs from the paper: the two clips are separate numbers (DAPO's clip-higher, arXiv 2503.14476, equation 10), and
the ratio is taken to the policy that sampled, as the engine computed it, not to a recomputation by the learner.

The loss is returned per token: how tokens are averaged is the caller's choice, and not this file's business.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class TokenLoss:
    """A loss per token, 0 where the mask is 0, with what is reported of it. All tensors have the inputs' shape."""

    loss: torch.Tensor
    ratio: torch.Tensor
    """pi / mu; 1 where the mask is 0. Detached."""
    clipped_low: torch.Tensor
    """Where the lower clip stopped the gradient: A < 0 and r < 1 - low. Boolean."""
    clipped_high: torch.Tensor
    """Where the upper clip stopped the gradient: A > 0 and r > 1 + high. Boolean."""
    divergence: torch.Tensor
    """Schulman's estimate of KL(mu || pi), r - 1 - log r, never negative; 0 where the mask is 0. Detached."""


def clipped_policy_loss(
    log_probabilities: torch.Tensor,
    behaviour_log_probabilities: torch.Tensor,
    advantages: torch.Tensor,
    mask: torch.Tensor,
    *,
    clip_low: float,
    clip_high: float,
) -> TokenLoss:
    """PPO's clipped surrogate per token; see the head of this file.

    All tensors have one shape (any); `mask` is true on reply tokens. Log-probabilities are in nats and of the
    distribution that was sampled from, temperature included. Only `log_probabilities` receives a gradient.
    """
    mask = mask.bool()
    log_ratio = (log_probabilities - behaviour_log_probabilities).masked_fill(~mask, 0.0)
    ratio = log_ratio.exp()
    unclipped = ratio * advantages
    clipped = ratio.clamp(1.0 - clip_low, 1.0 + clip_high) * advantages
    loss = -torch.minimum(unclipped, clipped).masked_fill(~mask, 0.0)
    fixed_ratio = ratio.detach()
    return TokenLoss(
        loss=loss,
        ratio=fixed_ratio,
        clipped_low=mask & (advantages < 0) & (fixed_ratio < 1.0 - clip_low),
        clipped_high=mask & (advantages > 0) & (fixed_ratio > 1.0 + clip_high),
        divergence=fixed_ratio - 1.0 - log_ratio.detach(),
    )
