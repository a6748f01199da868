"""Losses of which log pi is differentiated: L_t = -constant(w_t) A_t log pi(t), with a weight that is bounded.

    reinforce   w_t = 1
    cispo       w_t = clip(r_t)                                    MiniMax-M1
    topr        w_t = 1 where A_t > 0, else min(r_t, 1)            tapered off-policy REINFORCE
    dppo-tv     w_t = min(r_t, 20) M_t,  M_t = 0 where pi has moved further from mu than delta, the way that A_t pushes;
                distance: |pi(t) - mu(t)|
    dppo-kl     the same, distance: KL between the two coins that show this token with probability mu(t) and pi(t)
    vespo       w = W^k exp(lambda (1 - W)),  W = exp(sum of log r over the sequence)
    dro         L_t = -(A_t log pi(t) - (beta / 2) (log r_t)^2)

The weight and the mask are constants: no token has a gradient of the ratio, so that a token is lost to a mask alone.
Bias: at r_t = 1 the gradient of each is the policy gradient; away from it the weight is r_t where nothing
bounds it, and what is bounded or masked is the bias. `reinforce` does not reweight at all: biased, without a bound,
from the second step on a batch; `topr` does so for advantages above 0 alone.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from turnwise.config.quantities import NotNegative, Positive
from turnwise.policy.divergence import LARGEST_LOG_RATIO
from turnwise.policy.learner.token_loss import TokenLoss, masked_log_ratio, sequence_sum, token_loss

if TYPE_CHECKING:
    import torch

Probability = Annotated[float, Field(gt=0.0, le=1.0, allow_inf_nan=False)]
SMALLEST_LOG_SEQUENCE_RATIO = math.log(1e-8)
"""Of VESPO, as in its release: the weight of a sequence that is further off is 0 for every k."""
_SMALL = 1e-8
"""Added to probabilities that a logarithm is taken of, as in verl and SkyRL."""


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
    log_ratio = masked_log_ratio(log_probabilities, behaviour_log_probabilities, mask)
    return token_loss(-(advantages * log_probabilities), log_ratio, mask)


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
    log_ratio = masked_log_ratio(log_probabilities, behaviour_log_probabilities, mask).detach()
    ratio = log_ratio.exp()
    weight = ratio.clamp(1.0 - clip_low, 1.0 + clip_high)
    return token_loss(
        -(weight * advantages * log_probabilities),
        log_ratio,
        mask,
        ratio=ratio,
        clipped_low=(advantages != 0) & (ratio < 1.0 - clip_low),
        clipped_high=(advantages != 0) & (ratio > 1.0 + clip_high),
    )


def tapered_loss(
    log_probabilities: torch.Tensor,
    behaviour_log_probabilities: torch.Tensor,
    advantages: torch.Tensor,
    mask: torch.Tensor,
    sequence: torch.Tensor | None = None,
) -> TokenLoss:
    """TOPR, tapered off-policy REINFORCE (Le Roux et al. 2025, arXiv 2503.14286, equation 8).

        L_t = -A_t log pi(t)                        where A_t > 0: imitated, however rare it has become
        L_t = -constant(min(r_t, 1)) A_t log pi(t)  else: pushed down less, the rarer it has become

    What differs: the paper and ROLL split by the sign of the episode's reward; here it is the token's advantage's,
    which may differ between turns; the paper's ratio is the sequence's, ROLL's and this the token's. Tensors as for
    `clipped_policy_loss`.
    """
    mask = mask.bool()
    log_ratio = masked_log_ratio(log_probabilities, behaviour_log_probabilities, mask).detach()
    ratio = log_ratio.exp()
    weight = ratio.clamp(max=1.0).where(advantages <= 0, 1.0)
    clipped_high = (advantages < 0) & (ratio > 1.0)
    return token_loss(-(weight * advantages * log_probabilities), log_ratio, mask, clipped_high=clipped_high)


def total_variation_loss(
    log_probabilities: torch.Tensor,
    behaviour_log_probabilities: torch.Tensor,
    advantages: torch.Tensor,
    mask: torch.Tensor,
    sequence: torch.Tensor | None = None,
    *,
    delta_low: Probability = 0.2,
    delta_high: Probability = 0.2,
    largest_ratio: Positive = 20.0,
) -> TokenLoss:
    """DPPO with the binary total variation (Divergence PPO, arXiv 2602.04879, equations 12 and 13).

        L_t = -constant(min(r_t, largest_ratio)) A_t log pi(t) M_t
        M_t = 0 where A_t > 0 and pi(t) - mu(t) > delta_high, or A_t <= 0 and pi(t) - mu(t) < -delta_low; else 1

    A ratio clips tokens that are rare, whose ratio moves easily, and leaves common ones; the difference of
    probabilities bounds what the policy as a whole has moved. The bounds are verl's, SkyRL's and prime-rl's, 0.2.
    prime-rl's default loss is this one plus kl_tau (log r)^2. Tensors as for `clipped_policy_loss`.
    """
    mask = mask.bool()
    log_pi, log_mu = (
        each.detach().masked_fill(~mask, 0.0) for each in (log_probabilities, behaviour_log_probabilities)
    )
    moved = log_pi.exp() - log_mu.exp()
    log_ratio = masked_log_ratio(log_pi, log_mu, mask)
    return _within_trust_region(
        log_probabilities, log_ratio, advantages, mask, moved < -delta_low, moved > delta_high, largest_ratio
    )


def binary_divergence_loss(
    log_probabilities: torch.Tensor,
    behaviour_log_probabilities: torch.Tensor,
    advantages: torch.Tensor,
    mask: torch.Tensor,
    sequence: torch.Tensor | None = None,
    *,
    delta_low: Positive = 0.2,
    delta_high: Positive = 0.2,
    largest_ratio: Positive = 20.0,
) -> TokenLoss:
    """DPPO with the binary KL divergence (Divergence PPO, arXiv 2602.04879, equation 14): see `total_variation_loss`.

    D_t = mu(t) log(mu(t) / pi(t)) + (1 - mu(t)) log((1 - mu(t)) / (1 - pi(t)))
    M_t = 0 where A_t > 0, pi(t) > mu(t) and D_t > delta_high, or A_t <= 0, pi(t) < mu(t) and D_t > delta_low
    """
    mask = mask.bool()
    log_pi, log_mu = (
        each.detach().masked_fill(~mask, 0.0) for each in (log_probabilities, behaviour_log_probabilities)
    )
    pi, mu = log_pi.exp(), log_mu.exp()
    divergence = mu * (log_mu - log_pi) + (1.0 - mu) * ((1.0 - mu + _SMALL) / (1.0 - pi + _SMALL)).log()
    log_ratio = masked_log_ratio(log_pi, log_mu, mask)
    too_low, too_high = (pi < mu) & (divergence > delta_low), (pi > mu) & (divergence > delta_high)
    return _within_trust_region(log_probabilities, log_ratio, advantages, mask, too_low, too_high, largest_ratio)


def gamma_weight_loss(
    log_probabilities: torch.Tensor,
    behaviour_log_probabilities: torch.Tensor,
    advantages: torch.Tensor,
    mask: torch.Tensor,
    sequence: torch.Tensor,
    *,
    power_positive: NotNegative = 2.0,
    decay_positive: Positive = 3.0,
    power_negative: NotNegative = 3.0,
    decay_negative: Positive = 2.0,
) -> TokenLoss:
    """VESPO, variational sequence-level soft policy optimization (arXiv 2602.10693, section 3.4).

        L_t = -constant(W^k exp(lambda (1 - W))) A_t log pi(t),   W = exp(sum over the sequence's reply tokens of log r)

    k and lambda are the powers and decays for A_t >= 0 and for A_t < 0. The weight is 1 at W = 1 and falls to 0 on both
    sides: no clip, and no division by the length. W is the whole sequence's ratio, so that long episodes reach its ends
    after small steps. log W is held within [log 1e-8, 20], as in the release and TRL. What differs: TRL multiplies the
    correction of the engine's mismatch into W; here it multiplies the loss, as in every other loss. Tensors as for
    `sequence_ratio_loss`.
    """
    mask = mask.bool()
    log_ratio = masked_log_ratio(log_probabilities, behaviour_log_probabilities, mask).detach()
    log_weight = sequence_sum(log_ratio, sequence).clamp(SMALLEST_LOG_SEQUENCE_RATIO, LARGEST_LOG_RATIO)
    ratio = log_weight.exp()
    negative = (advantages < 0).to(log_ratio.dtype)
    power = power_positive + (power_negative - power_positive) * negative
    decay = decay_positive + (decay_negative - decay_positive) * negative
    weight = (decay + power * log_weight - decay * ratio).exp()
    of_sequence = ratio.masked_fill(~mask, 1.0)
    return token_loss(-(weight * advantages * log_probabilities), log_ratio, mask, ratio=of_sequence)


def direct_reward_loss(
    log_probabilities: torch.Tensor,
    behaviour_log_probabilities: torch.Tensor,
    advantages: torch.Tensor,
    mask: torch.Tensor,
    sequence: torch.Tensor | None = None,
    *,
    beta: Positive = 1.0,
) -> TokenLoss:
    """DRO, direct reward optimisation (Richemond et al. 2024, arXiv 2405.19107), with advantages in place of r - V.

        L_t = -(A_t log pi(t) - (beta / 2) (log r_t)^2)

    The square holds pi at log r_t = A_t / beta. verl asks for beta and has no default; 1 is this one's. Tensors as for
    `clipped_policy_loss`.
    """
    mask = mask.bool()
    log_ratio = masked_log_ratio(log_probabilities, behaviour_log_probabilities, mask)
    return token_loss(-(advantages * log_probabilities - beta / 2.0 * log_ratio.square()), log_ratio, mask)


def _within_trust_region(
    log_probabilities: torch.Tensor,
    log_ratio: torch.Tensor,
    advantages: torch.Tensor,
    mask: torch.Tensor,
    too_low: torch.Tensor,
    too_high: torch.Tensor,
    largest_ratio: float,
) -> TokenLoss:
    """-constant(min(r, largest)) A log pi, without the tokens that are too low and pushed down, or too high and up."""
    ratio = log_ratio.exp()
    clipped_low, clipped_high = (advantages <= 0) & too_low, (advantages > 0) & too_high
    weight = ratio.clamp(max=largest_ratio).masked_fill(clipped_low | clipped_high, 0.0)
    return token_loss(
        -(weight * advantages * log_probabilities),
        log_ratio,
        mask,
        clipped_low=(advantages < 0) & clipped_low,
        clipped_high=clipped_high,
    )
