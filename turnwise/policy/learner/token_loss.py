"""What the losses of a policy share: the log ratio and its clamp, the result per token, and sums over a sequence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from turnwise.policy.divergence import LARGEST_LOG_RATIO

if TYPE_CHECKING:  # The configuration imports the losses for their names, and importing torch takes seconds.
    import torch


@dataclass(frozen=True)
class TokenLoss:
    """A loss per token, with the values for its metrics. All tensors have the inputs' shape."""

    loss: torch.Tensor
    """0 where the mask is 0."""
    ratio: torch.Tensor
    """pi / mu, of the token or, where the loss has that, of its sequence; 1 where the mask is 0. Detached."""
    clipped_low: torch.Tensor
    """Boolean: true where the lower clip changed the gradient."""
    clipped_high: torch.Tensor
    """Boolean: true where the upper clip changed the gradient."""
    dual_clipped: torch.Tensor
    """Boolean: true where the dual clip stopped the gradient."""
    divergence: torch.Tensor
    """Schulman's estimate of KL(mu || pi), in nats: r - 1 - log r of the token, never negative; 0 where the mask is 0.
    Detached."""


def token_loss(
    loss: torch.Tensor,
    log_ratio: torch.Tensor,
    mask: torch.Tensor,
    *,
    ratio: torch.Tensor | None = None,
    clipped_low: torch.Tensor | None = None,
    clipped_high: torch.Tensor | None = None,
    dual_clipped: torch.Tensor | None = None,
) -> TokenLoss:
    """The result of a loss: `loss` where the mask is true; clips that are None never were.

    `log_ratio` is the token's, from `masked_log_ratio`; `ratio` is what the loss used, by default the token's.
    """
    fixed, nowhere = log_ratio.detach(), mask.new_zeros(mask.shape)
    return TokenLoss(
        loss=loss.masked_fill(~mask, 0.0),
        ratio=fixed.exp() if ratio is None else ratio.detach(),
        clipped_low=nowhere if clipped_low is None else mask & clipped_low,
        clipped_high=nowhere if clipped_high is None else mask & clipped_high,
        dual_clipped=nowhere if dual_clipped is None else mask & dual_clipped,
        divergence=fixed.exp() - 1.0 - fixed,
    )


def masked_log_ratio(
    log_probabilities: torch.Tensor, behaviour_log_probabilities: torch.Tensor, mask: torch.Tensor
) -> torch.Tensor:
    """The log ratio, log r_t, clamped; 0 where the mask is 0, whatever the inputs hold there."""
    log_ratio = (log_probabilities - behaviour_log_probabilities).masked_fill(~mask, 0.0)
    return log_ratio.clamp(-LARGEST_LOG_RATIO, LARGEST_LOG_RATIO)


def sequence_sum(values: torch.Tensor, sequence: torch.Tensor) -> torch.Tensor:
    """For every token, the sum of `values` over its sequence's reply tokens; `values` must be 0 at other tokens."""
    if not len(sequence):  # a micro-batch without a reply token
        return values
    places = sequence.flatten()
    nothing = values.new_zeros(int(places.max()) + 1)
    return nothing.index_add(0, places, values.flatten())[sequence]


def sequence_mean(values: torch.Tensor, mask: torch.Tensor, sequence: torch.Tensor) -> torch.Tensor:
    """For every token, the mean of `values` over its sequence's reply tokens; `values` must be 0 at other tokens."""
    if not len(sequence):
        return values
    places = sequence.flatten()
    nothing = values.new_zeros(int(places.max()) + 1)
    totals = nothing.index_add(0, places, values.flatten())
    counts = nothing.index_add(0, places, mask.flatten().to(values.dtype))
    return (totals / counts.clamp(min=1.0))[sequence]
