"""Policy-gradient losses by name, as pure functions of tensors.

Per reply token t, with r_t = exp(log pi(t) - log mu(t)), the advantage A_t, and clip(r) = r held within
[1 - low, 1 + high]:

    clipped      L_t = -min(r_t A_t, clip(r_t) A_t)                     PPO
    gspo         L_t = -min(s A_t, clip(s) A_t),  s = exp(mean of log r over the reply tokens of the sequence)
                 (of a segment, where a trajectory has several: `turnwise.data.trajectory`)
    cispo        L_t = -constant(clip(r_t)) A_t log pi(t)
    reinforce    L_t = -A_t log pi(t)

mu is the behaviour policy, the one that sampled. Its log-probabilities are the engine's or, where the engine's mismatch
is corrected for (`turnwise.policy.learner.importance`), those that the learner recomputed. Each function names its
paper and what differs from it.

log r_t is clamped to [-20, 20], as in verl, SkyRL and OpenRLHF (none of the papers says so): exp(20) is 5e8, and beyond
exp(88) float32 knows only infinity, which a clip multiplies by zero. A token that is further off has no gradient.

All take the same five tensors, so that they are interchangeable; only `gspo` reads `sequence`. The loss is returned per
token; `turnwise.policy.learner.update` says how tokens are averaged.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # The configuration imports this file for its names, and importing torch takes seconds.
    import torch


LARGEST_LOG_RATIO = 20.0
"""Largest absolute value, in nats, of a log ratio whose exponential is taken: of the losses, of importance weights, and
of the divergence from a reference."""


@dataclass(frozen=True)
class TokenLoss:
    """A loss per token, with the values for its metrics. All tensors have the inputs' shape."""

    loss: torch.Tensor
    """0 where the mask is 0."""
    ratio: torch.Tensor
    """pi / mu, of the token or (GSPO) of its sequence; 1 where the mask is 0. Detached."""
    clipped_low: torch.Tensor
    """Boolean: true where the lower clip changed the gradient."""
    clipped_high: torch.Tensor
    """Boolean: true where the upper clip changed the gradient."""
    dual_clipped: torch.Tensor
    """Boolean: true where the dual clip stopped the gradient."""
    divergence: torch.Tensor
    """Schulman's estimate of KL(mu || pi), in nats: r - 1 - log r of the token, never negative; 0 where the mask is 0.
    Detached."""


def clipped_policy_loss(
    log_probabilities: torch.Tensor,
    behaviour_log_probabilities: torch.Tensor,
    advantages: torch.Tensor,
    mask: torch.Tensor,
    sequence: torch.Tensor | None = None,
    *,
    clip_low: float = 0.2,
    clip_high: float = 0.2,
    dual_clip: float | None = None,
) -> TokenLoss:
    """PPO's clipped surrogate (Schulman et al. 2017, arXiv 1707.06347, equation 7).

    With a dual clip c, where A_t < 0 (Ye et al. 2020, arXiv 1912.09729, equation 3):

        L_t = -max(min(r_t A_t, clip(r_t) A_t), c A_t)

    so that a token with a negative advantage that has become much likelier since it was sampled has no gradient of
    unbounded size. What differs from the papers: the two clips are separate numbers (DAPO's clip-higher, arXiv
    2503.14476, equation 10).

    All tensors have one shape (any); `mask` is true on reply tokens. Log-probabilities are in nats and of the
    distribution that was sampled from, temperature included. Only `log_probabilities` receives a gradient.
    """
    mask = mask.bool()
    log_ratio = _log_ratio(log_probabilities, behaviour_log_probabilities, mask)
    return _clipped_surrogate(log_ratio, log_ratio, advantages, mask, clip_low, clip_high, dual_clip)


def sequence_ratio_loss(
    log_probabilities: torch.Tensor,
    behaviour_log_probabilities: torch.Tensor,
    advantages: torch.Tensor,
    mask: torch.Tensor,
    sequence: torch.Tensor,
    *,
    clip_low: float = 3e-4,
    clip_high: float = 4e-4,
) -> TokenLoss:
    """GSPO, group sequence policy optimization (Zheng et al. 2025, arXiv 2507.18071), in its token-level form.

        s = exp(mean over the sequence's reply tokens of log r_t)
        s_t = constant(s) pi(t) / constant(pi(t))              in value s; its gradient is s times that of log pi(t)
        L_t = -min(s_t A_t, clip(s_t) A_t)

    so that a sequence is clipped as a whole. The clips are the paper's, a thousandth of PPO's, since s is a mean.

    What differs from the paper's main form, which has s itself in place of s_t: an advantage that differs between the
    turns of a trajectory reaches its own tokens. Where all advantages of a sequence are equal, and its tokens weigh
    alike, the two forms have the same value and the same gradient.

    Tensors as for `clipped_policy_loss`. `sequence` is the index of each token's sequence, 0 or more; the tensors must
    hold all reply tokens of a sequence, since s is a mean over them.
    """
    mask = mask.bool()
    log_ratio = _log_ratio(log_probabilities, behaviour_log_probabilities, mask)
    mean = _mean_per_sequence(log_ratio.detach(), mask, sequence)
    log_sequence_ratio = ((log_ratio - log_ratio.detach()) + mean).masked_fill(~mask, 0.0)
    return _clipped_surrogate(log_sequence_ratio, log_ratio, advantages, mask, clip_low, clip_high, None)


def clipped_weight_loss(
    log_probabilities: torch.Tensor,
    behaviour_log_probabilities: torch.Tensor,
    advantages: torch.Tensor,
    mask: torch.Tensor,
    sequence: torch.Tensor | None = None,
    *,
    clip_low: float = 1.0,
    clip_high: float = 4.0,
) -> TokenLoss:
    """CISPO (MiniMax-M1, arXiv 2506.13585, equations 4 and 5): the weight is clipped, and no token is ever dropped.

        L_t = -constant(clip(r_t)) A_t log pi(t)

    What differs from the paper: the clips, since it does not publish its numbers. A lower clip of 1 means none, as in
    the paper; the largest weight of 5 is that of ScaleRL (arXiv 2510.13786). Tensors as for `clipped_policy_loss`.
    """
    mask = mask.bool()
    log_ratio = _log_ratio(log_probabilities, behaviour_log_probabilities, mask).detach()
    ratio = log_ratio.exp()
    weight = ratio.clamp(1.0 - clip_low, 1.0 + clip_high)
    return TokenLoss(
        loss=-(weight * advantages * log_probabilities).masked_fill(~mask, 0.0),
        ratio=ratio,
        clipped_low=mask & (advantages != 0) & (ratio < 1.0 - clip_low),
        clipped_high=mask & (advantages != 0) & (ratio > 1.0 + clip_high),
        dual_clipped=mask.new_zeros(mask.shape),
        divergence=_divergence(log_ratio),
    )


def reinforce_loss(
    log_probabilities: torch.Tensor,
    behaviour_log_probabilities: torch.Tensor,
    advantages: torch.Tensor,
    mask: torch.Tensor,
    sequence: torch.Tensor | None = None,
) -> TokenLoss:
    """Plain REINFORCE (Williams 1992): the score times the advantage.

        L_t = -A_t log pi(t)

    The ratio is reported but not used: samples are not reweighted, so from the second optimizer step on a batch the
    gradient is biased, without a bound. Tensors as for `clipped_policy_loss`.
    """
    mask = mask.bool()
    log_ratio = _log_ratio(log_probabilities, behaviour_log_probabilities, mask).detach()
    nowhere = mask.new_zeros(mask.shape)
    return TokenLoss(
        loss=-(advantages * log_probabilities).masked_fill(~mask, 0.0),
        ratio=log_ratio.exp(),
        clipped_low=nowhere,
        clipped_high=nowhere,
        dual_clipped=nowhere,
        divergence=_divergence(log_ratio),
    )


LOSSES: Mapping[str, Callable[..., TokenLoss]] = {
    "clipped": clipped_policy_loss,
    "gspo": sequence_ratio_loss,
    "cispo": clipped_weight_loss,
    "reinforce": reinforce_loss,
}
"""The losses by name. The options of a loss are its keyword arguments, with its own defaults."""


def _clipped_surrogate(
    log_ratio: torch.Tensor,
    token_log_ratio: torch.Tensor,
    advantages: torch.Tensor,
    mask: torch.Tensor,
    clip_low: float,
    clip_high: float,
    dual_clip: float | None,
) -> TokenLoss:
    """The clipped surrogate -min(r A, clip(r) A) for a ratio r = exp(log_ratio), of the token or of its sequence.

    `token_log_ratio` is the token's in either case; the reported divergence is computed from it.
    """
    ratio = log_ratio.exp()
    unclipped = ratio * advantages
    clipped = ratio.clamp(1.0 - clip_low, 1.0 + clip_high) * advantages
    surrogate = unclipped.minimum(clipped)
    fixed_ratio = ratio.detach()
    dual_clipped = mask.new_zeros(mask.shape)
    if dual_clip is not None:
        dual_clipped = mask & (advantages < 0) & (fixed_ratio > dual_clip)
        surrogate = surrogate.where(~dual_clipped, dual_clip * advantages)
    return TokenLoss(
        loss=-surrogate.masked_fill(~mask, 0.0),
        ratio=fixed_ratio,
        clipped_low=mask & (advantages < 0) & (fixed_ratio < 1.0 - clip_low),
        clipped_high=mask & (advantages > 0) & (fixed_ratio > 1.0 + clip_high),
        dual_clipped=dual_clipped,
        divergence=_divergence(token_log_ratio.detach()),
    )


def _log_ratio(
    log_probabilities: torch.Tensor, behaviour_log_probabilities: torch.Tensor, mask: torch.Tensor
) -> torch.Tensor:
    """The log ratio, log r_t, clamped; 0 where the mask is 0, whatever the inputs hold there."""
    log_ratio = (log_probabilities - behaviour_log_probabilities).masked_fill(~mask, 0.0)
    return log_ratio.clamp(-LARGEST_LOG_RATIO, LARGEST_LOG_RATIO)


def _divergence(log_ratio: torch.Tensor) -> torch.Tensor:
    return log_ratio.exp() - 1.0 - log_ratio


def _mean_per_sequence(values: torch.Tensor, mask: torch.Tensor, sequence: torch.Tensor) -> torch.Tensor:
    """For every token, the mean of `values` over its sequence's reply tokens; `values` must be 0 at other tokens."""
    if not len(sequence):  # a micro-batch without a reply token
        return values
    places = sequence.flatten()
    nothing = values.new_zeros(int(places.max()) + 1)
    totals = nothing.index_add(0, places, values.flatten())
    counts = nothing.index_add(0, places, mask.flatten().to(values.dtype))
    return (totals / counts.clamp(min=1.0))[sequence]
