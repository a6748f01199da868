"""Losses of which the ratio is differentiated: L_t = -f(r_t, A_t), with f bounded by a clip or a gate.

    importance-sampling   L_t = -r_t A_t
    clipped               L_t = -min(r_t A_t, clip(r_t) A_t)                                             PPO
    gspo                  L_t = -min(s A_t, clip(s) A_t),   s = exp(mean of log r over the sequence)
    gmpo                  L_t = -A_t g,   g = exp(mean of a_t min(a_t log r_t, a_t clip(log r_t))),   a_t = sign of A_t
    sapo                  L_t = -(4 / tau) sigma(tau (r_t - 1)) A_t

Bias: with r_t = 1, at the first step on a batch, the gradient of each is the policy gradient, -A_t times the score.
`importance-sampling` is unbiased for the state distribution of mu at any distance, with a variance that has no bound;
what bounds it in the others is their bias.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from turnwise.config.quantities import Positive
from turnwise.policy.learner.token_loss import TokenLoss, masked_log_ratio, sequence_mean, token_loss

if TYPE_CHECKING:
    import torch


def importance_sampling_loss(
    log_probabilities: torch.Tensor,
    behaviour_log_probabilities: torch.Tensor,
    advantages: torch.Tensor,
    mask: torch.Tensor,
    sequence: torch.Tensor | None = None,
) -> TokenLoss:
    """The surrogate of PPO without its clip. Tensors as for `clipped_policy_loss`.

    L_t = -r_t A_t
    """
    mask = mask.bool()
    log_ratio = masked_log_ratio(log_probabilities, behaviour_log_probabilities, mask)
    return token_loss(-(log_ratio.exp() * advantages), log_ratio, mask)


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
    log_ratio = masked_log_ratio(log_probabilities, behaviour_log_probabilities, mask)
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
    log_ratio = masked_log_ratio(log_probabilities, behaviour_log_probabilities, mask)
    mean = sequence_mean(log_ratio.detach(), mask, sequence)
    log_sequence_ratio = ((log_ratio - log_ratio.detach()) + mean).masked_fill(~mask, 0.0)
    return _clipped_surrogate(log_sequence_ratio, log_ratio, advantages, mask, clip_low, clip_high, None)


def geometric_mean_loss(
    log_probabilities: torch.Tensor,
    behaviour_log_probabilities: torch.Tensor,
    advantages: torch.Tensor,
    mask: torch.Tensor,
    sequence: torch.Tensor,
    *,
    clip_low: float = 0.4,
    clip_high: float = 0.4,
) -> TokenLoss:
    """GMPO, geometric-mean policy optimization (Zhao et al. 2025, arXiv 2507.20673), in a token-level form.

        l_t = a_t min(a_t log r_t, a_t clip(log r_t)),  log r_t held within [-low, high],  a_t = sign of A_t
        g = exp(mean over the sequence's reply tokens of l_t)
        L_t = -A_t g

    Tokens are clipped one by one, in the logarithm and more widely than PPO's ratio is; their geometric mean weighs the
    sequence, so that one token that is far off moves it little. The clips are the paper's, (e^-0.4, e^0.4).

    What differs: the paper has one advantage a sequence, and verl takes the mean of the tokens' for it; here, as in
    `sequence_ratio_loss`, an advantage that differs between turns reaches its own tokens. Where all advantages of a
    sequence are equal the value and the gradient are the paper's. Tensors as for `sequence_ratio_loss`.
    """
    mask = mask.bool()
    log_ratio = masked_log_ratio(log_probabilities, behaviour_log_probabilities, mask)
    sign = advantages.sign()
    own = sign * (sign * log_ratio).minimum(sign * log_ratio.clamp(-clip_low, clip_high))
    mean = sequence_mean(own.detach().masked_fill(~mask, 0.0), mask, sequence)
    weight = ((own - own.detach()) + mean).masked_fill(~mask, 0.0).exp()
    fixed = log_ratio.detach()
    return token_loss(
        -(weight * advantages),
        log_ratio,
        mask,
        ratio=weight,
        clipped_low=(advantages < 0) & (fixed < -clip_low),
        clipped_high=(advantages > 0) & (fixed > clip_high),
    )


def soft_gate_loss(
    log_probabilities: torch.Tensor,
    behaviour_log_probabilities: torch.Tensor,
    advantages: torch.Tensor,
    mask: torch.Tensor,
    sequence: torch.Tensor | None = None,
    *,
    temperature_positive: Positive = 1.0,
    temperature_negative: Positive = 1.05,
) -> TokenLoss:
    """SAPO, soft adaptive policy optimization (Qwen, arXiv 2511.20347, equations 5 and 6): a gate in place of a clip.

        L_t = -(4 / tau) sigma(tau (r_t - 1)) A_t,   tau = temperature_positive where A_t > 0, else temperature_negative

    sigma is the logistic function. The gradient is that of the policy times 4 sigma (1 - sigma) r_t, which is 1 at
    r_t = 1 and falls smoothly on both sides, faster for the higher temperature: tokens that are pushed down are less
    stable. Temperatures are the paper's, as in verl, TRL and SkyRL, which average by sequence. Tensors as for
    `clipped_policy_loss`.
    """
    mask = mask.bool()
    log_ratio = masked_log_ratio(log_probabilities, behaviour_log_probabilities, mask)
    negative = (advantages <= 0).to(advantages.dtype)
    temperature = temperature_positive + (temperature_negative - temperature_positive) * negative
    gate = (temperature * (log_ratio.exp() - 1.0)).sigmoid() * (4.0 / temperature)
    return token_loss(-(gate * advantages), log_ratio, mask)


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
    dual_clipped = None
    if dual_clip is not None:
        dual_clipped = mask & (advantages < 0) & (fixed_ratio > dual_clip)
        surrogate = surrogate.where(~dual_clipped, dual_clip * advantages)
    return token_loss(
        -surrogate,
        token_log_ratio,
        mask,
        ratio=fixed_ratio,
        clipped_low=(advantages < 0) & (fixed_ratio < 1.0 - clip_low),
        clipped_high=(advantages > 0) & (fixed_ratio > 1.0 + clip_high),
        dual_clipped=dual_clipped,
    )
