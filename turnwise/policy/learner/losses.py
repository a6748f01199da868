"""Policy-gradient losses by name, as pure functions of tensors.

Per reply token t, with r_t = exp(log pi(t) - log mu(t)) and the advantage A_t, two families:

**The ratio is differentiated**: L_t = -f(r_t, A_t), with f bounded by a clip or a gate.

    importance-sampling   L_t = -r_t A_t
    clipped               L_t = -min(r_t A_t, clip(r_t) A_t)                                             PPO
    gspo                  L_t = -min(s A_t, clip(s) A_t),   s = exp(mean of log r over the sequence)
    gmpo                  L_t = -A_t g,   g = exp(mean of a_t min(a_t log r_t, a_t clip(log r_t))),   a_t = sign of A_t
    sapo                  L_t = -(4 / tau) sigma(tau (r_t - 1)) A_t

Bias: with r_t = 1, at the first step on a batch, the gradient of each is the policy gradient, -A_t times the score.
`importance-sampling` is unbiased for the state distribution of mu at any distance, with a variance that has no bound;
what bounds it in the others is their bias.

**log pi is differentiated**: L_t = -constant(w_t) A_t log pi(t), with a weight that is bounded.

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

mu is the behaviour policy, the one that sampled. Its log-probabilities are the engine's or, where the engine's mismatch
is corrected for (`turnwise.policy.learner.importance`), those that the learner recomputed. Each function names its
paper and what differs from it.

log r_t is clamped to [-20, 20], as in verl, SkyRL and OpenRLHF (none of the papers says so): exp(20) is 5e8, and beyond
exp(88) float32 knows only infinity, which a clip multiplies by zero. A ratio that is further off has no gradient.

All take the same tensors, [replies], one number per reply token of a micro-batch, so that they are interchangeable: log
pi and log mu, in nats, of the distribution that was sampled from, temperature included; the advantages; and the index
of the token's sequence, 0 or more, of which all reply tokens are there. Only log pi gets a gradient. The loss is
returned per token; `turnwise.policy.learner.update` says how tokens are averaged.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from turnwise.config.quantities import NotNegative, Positive
from turnwise.policy.divergence import LARGEST_LOG_RATIO

if TYPE_CHECKING:  # The configuration imports the losses for their names, and importing torch takes seconds.
    from torch import Tensor

Probability = Annotated[float, Field(gt=0.0, le=1.0, allow_inf_nan=False)]
SMALLEST_LOG_SEQUENCE_RATIO = math.log(1e-8)
"""Of VESPO, as in its release: the weight of a sequence that is further off is 0 for every k."""
_SMALL = 1e-8
"""Added to probabilities that a logarithm is taken of, as in verl and SkyRL."""


@dataclass(frozen=True)
class TokenLoss:
    """A loss per token, with the values for its metrics. All tensors have the inputs' shape."""

    loss: Tensor
    ratio: Tensor
    """pi / mu, of the token or, where the loss has that, of its sequence. Detached."""
    clipped_low: Tensor
    """Boolean: true where the lower clip changed the gradient."""
    clipped_high: Tensor
    """Boolean: true where the upper clip changed the gradient."""
    dual_clipped: Tensor
    """Boolean: true where the dual clip stopped the gradient."""
    divergence: Tensor
    """Schulman's estimate of KL(mu || pi), in nats: r - 1 - log r of the token, never negative. Detached."""


def token_loss(
    loss: Tensor,
    log_ratio: Tensor,
    *,
    ratio: Tensor | None = None,
    clipped_low: Tensor | None = None,
    clipped_high: Tensor | None = None,
    dual_clipped: Tensor | None = None,
) -> TokenLoss:
    """The result of a loss; clips that are None never were.

    `log_ratio` is the token's, from `clamped_log_ratio`; `ratio` is what the loss used, by default the token's.
    """
    fixed = log_ratio.detach()
    nowhere = fixed.new_zeros(fixed.shape).bool()
    return TokenLoss(
        loss=loss,
        ratio=fixed.exp() if ratio is None else ratio.detach(),
        clipped_low=nowhere if clipped_low is None else clipped_low,
        clipped_high=nowhere if clipped_high is None else clipped_high,
        dual_clipped=nowhere if dual_clipped is None else dual_clipped,
        divergence=fixed.exp() - 1.0 - fixed,
    )


def clamped_log_ratio(log_pi: Tensor, log_mu: Tensor) -> Tensor:
    """The log ratio, log r_t, within [-20, 20]."""
    return (log_pi - log_mu).clamp(-LARGEST_LOG_RATIO, LARGEST_LOG_RATIO)


def sequence_sum(values: Tensor, sequence: Tensor) -> Tensor:
    """For every token, the sum of `values` over the reply tokens of its sequence."""
    if not len(sequence):  # a micro-batch without a reply token
        return values
    return values.new_zeros(int(sequence.max()) + 1).index_add(0, sequence, values)[sequence]


def sequence_mean(values: Tensor, sequence: Tensor) -> Tensor:
    """For every token, the mean of `values` over the reply tokens of its sequence."""
    return sequence_sum(values, sequence) / sequence_sum(values.new_ones(values.shape), sequence)


def importance_sampling_loss(log_pi: Tensor, log_mu: Tensor, advantages: Tensor, sequence: Tensor) -> TokenLoss:
    """The surrogate of PPO without its clip.

    L_t = -r_t A_t
    """
    log_ratio = clamped_log_ratio(log_pi, log_mu)
    return token_loss(-(log_ratio.exp() * advantages), log_ratio)


def clipped_policy_loss(
    log_pi: Tensor,
    log_mu: Tensor,
    advantages: Tensor,
    sequence: Tensor,
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
    """
    log_ratio = clamped_log_ratio(log_pi, log_mu)
    return _clipped_surrogate(log_ratio.exp(), log_ratio, advantages, clip_low, clip_high, dual_clip)


def sequence_ratio_loss(
    log_pi: Tensor,
    log_mu: Tensor,
    advantages: Tensor,
    sequence: Tensor,
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
    """
    log_ratio = clamped_log_ratio(log_pi, log_mu)
    ratio = _mean_in_value(log_ratio, sequence).exp()
    return _clipped_surrogate(ratio, log_ratio, advantages, clip_low, clip_high, None)


def geometric_mean_loss(
    log_pi: Tensor,
    log_mu: Tensor,
    advantages: Tensor,
    sequence: Tensor,
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
    sequence are equal the value and the gradient are the paper's.
    """
    log_ratio = clamped_log_ratio(log_pi, log_mu)
    sign = advantages.sign()
    own = sign * (sign * log_ratio).minimum(sign * log_ratio.clamp(-clip_low, clip_high))
    weight = _mean_in_value(own, sequence).exp()
    fixed = log_ratio.detach()
    return token_loss(
        -(weight * advantages),
        log_ratio,
        ratio=weight,
        clipped_low=(advantages < 0) & (fixed < -clip_low),
        clipped_high=(advantages > 0) & (fixed > clip_high),
    )


def soft_gate_loss(
    log_pi: Tensor,
    log_mu: Tensor,
    advantages: Tensor,
    sequence: Tensor,
    *,
    temperature_positive: Positive = 1.0,
    temperature_negative: Positive = 1.05,
) -> TokenLoss:
    """SAPO, soft adaptive policy optimization (Qwen, arXiv 2511.20347, equations 5 and 6): a gate in place of a clip.

        L_t = -(4 / tau) sigma(tau (r_t - 1)) A_t,   tau = temperature_positive where A_t > 0, else temperature_negative

    sigma is the logistic function. The gradient is that of the policy times 4 sigma (1 - sigma) r_t, which is 1 at
    r_t = 1 and falls smoothly on both sides, faster for the higher temperature: tokens that are pushed down are less
    stable. Temperatures are the paper's, as in verl, TRL and SkyRL, which average by sequence.
    """
    log_ratio = clamped_log_ratio(log_pi, log_mu)
    negative = (advantages <= 0).to(advantages.dtype)
    temperature = temperature_positive + (temperature_negative - temperature_positive) * negative
    gate = (temperature * (log_ratio.exp() - 1.0)).sigmoid() * (4.0 / temperature)
    return token_loss(-(gate * advantages), log_ratio)


def _mean_in_value(values: Tensor, sequence: Tensor) -> Tensor:
    """For every token, the mean of `values` over its sequence's reply tokens, with the gradient of its own value."""
    return (values - values.detach()) + sequence_mean(values.detach(), sequence)


def _clipped_surrogate(
    ratio: Tensor, log_ratio: Tensor, advantages: Tensor, clip_low: float, clip_high: float, dual_clip: float | None
) -> TokenLoss:
    """The clipped surrogate -min(r A, clip(r) A) for a ratio r, of the token or of its sequence.

    `log_ratio` is the token's in either case; the reported divergence is computed from it.
    """
    surrogate = (ratio * advantages).minimum(ratio.clamp(1.0 - clip_low, 1.0 + clip_high) * advantages)
    fixed, dual_clipped = ratio.detach(), None
    if dual_clip is not None:
        dual_clipped = (advantages < 0) & (fixed > dual_clip)
        surrogate = surrogate.where(~dual_clipped, dual_clip * advantages)
    return token_loss(
        -surrogate,
        log_ratio,
        ratio=fixed,
        clipped_low=(advantages < 0) & (fixed < 1.0 - clip_low),
        clipped_high=(advantages > 0) & (fixed > 1.0 + clip_high),
        dual_clipped=dual_clipped,
    )


def reinforce_loss(log_pi: Tensor, log_mu: Tensor, advantages: Tensor, sequence: Tensor) -> TokenLoss:
    """Plain REINFORCE (Williams 1992): the score times the advantage.

        L_t = -A_t log pi(t)

    The ratio is reported but not used: samples are not reweighted, so from the second optimizer step on a batch the
    gradient is biased, without a bound.
    """
    return token_loss(-(advantages * log_pi), clamped_log_ratio(log_pi, log_mu))


def clipped_weight_loss(
    log_pi: Tensor,
    log_mu: Tensor,
    advantages: Tensor,
    sequence: Tensor,
    *,
    clip_low: float = 1.0,
    clip_high: float = 4.0,
) -> TokenLoss:
    """CISPO (MiniMax-M1, arXiv 2506.13585, equations 4 and 5): the weight is clipped, and no token is ever dropped.

        L_t = -constant(clip(r_t)) A_t log pi(t)

    What differs from the paper: the clips, since it does not publish its numbers. A lower clip of 1 means none, as in
    the paper; the largest weight of 5 is that of ScaleRL (arXiv 2510.13786).
    """
    log_ratio = clamped_log_ratio(log_pi, log_mu).detach()
    ratio = log_ratio.exp()
    weight = ratio.clamp(1.0 - clip_low, 1.0 + clip_high)
    return token_loss(
        -(weight * advantages * log_pi),
        log_ratio,
        clipped_low=(advantages != 0) & (ratio < 1.0 - clip_low),
        clipped_high=(advantages != 0) & (ratio > 1.0 + clip_high),
    )


def tapered_loss(log_pi: Tensor, log_mu: Tensor, advantages: Tensor, sequence: Tensor) -> TokenLoss:
    """TOPR, tapered off-policy REINFORCE (Le Roux et al. 2025, arXiv 2503.14286, equation 8).

        L_t = -A_t log pi(t)                        where A_t > 0: imitated, however rare it has become
        L_t = -constant(min(r_t, 1)) A_t log pi(t)  else: pushed down less, the rarer it has become

    What differs: the paper and ROLL split by the sign of the episode's reward; here it is the token's advantage's,
    which may differ between turns; the paper's ratio is the sequence's, ROLL's and this the token's.
    """
    log_ratio = clamped_log_ratio(log_pi, log_mu).detach()
    ratio = log_ratio.exp()
    weight = ratio.clamp(max=1.0).where(advantages <= 0, 1.0)
    return token_loss(-(weight * advantages * log_pi), log_ratio, clipped_high=(advantages < 0) & (ratio > 1.0))


def total_variation_loss(
    log_pi: Tensor,
    log_mu: Tensor,
    advantages: Tensor,
    sequence: Tensor,
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
    prime-rl's default loss is this one plus kl_tau (log r)^2.
    """
    moved = log_pi.detach().exp() - log_mu.exp()
    return _within_trust_region(log_pi, log_mu, advantages, moved < -delta_low, moved > delta_high, largest_ratio)


def binary_divergence_loss(
    log_pi: Tensor,
    log_mu: Tensor,
    advantages: Tensor,
    sequence: Tensor,
    *,
    delta_low: Positive = 0.2,
    delta_high: Positive = 0.2,
    largest_ratio: Positive = 20.0,
) -> TokenLoss:
    """DPPO with the binary KL divergence (Divergence PPO, arXiv 2602.04879, equation 14): see `total_variation_loss`.

    D_t = mu(t) log(mu(t) / pi(t)) + (1 - mu(t)) log((1 - mu(t)) / (1 - pi(t)))
    M_t = 0 where A_t > 0, pi(t) > mu(t) and D_t > delta_high, or A_t <= 0, pi(t) < mu(t) and D_t > delta_low
    """
    pi, mu = log_pi.detach().exp(), log_mu.exp()
    divergence = mu * (log_mu - log_pi.detach()) + (1.0 - mu) * ((1.0 - mu + _SMALL) / (1.0 - pi + _SMALL)).log()
    too_low, too_high = (pi < mu) & (divergence > delta_low), (pi > mu) & (divergence > delta_high)
    return _within_trust_region(log_pi, log_mu, advantages, too_low, too_high, largest_ratio)


def gamma_weight_loss(
    log_pi: Tensor,
    log_mu: Tensor,
    advantages: Tensor,
    sequence: Tensor,
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
    correction of the engine's mismatch into W; here it multiplies the loss, as in every other loss.
    """
    log_ratio = clamped_log_ratio(log_pi, log_mu).detach()
    log_weight = sequence_sum(log_ratio, sequence).clamp(SMALLEST_LOG_SEQUENCE_RATIO, LARGEST_LOG_RATIO)
    ratio = log_weight.exp()
    negative = (advantages < 0).to(log_ratio.dtype)
    power = power_positive + (power_negative - power_positive) * negative
    decay = decay_positive + (decay_negative - decay_positive) * negative
    weight = (decay + power * log_weight - decay * ratio).exp()
    return token_loss(-(weight * advantages * log_pi), log_ratio, ratio=ratio)


def direct_reward_loss(
    log_pi: Tensor, log_mu: Tensor, advantages: Tensor, sequence: Tensor, *, beta: Positive = 1.0
) -> TokenLoss:
    """DRO, direct reward optimisation (Richemond et al. 2024, arXiv 2405.19107), with advantages in place of r - V.

        L_t = -(A_t log pi(t) - (beta / 2) (log r_t)^2)

    The square holds pi at log r_t = A_t / beta. verl asks for beta and has no default; 1 is this one's.
    """
    log_ratio = clamped_log_ratio(log_pi, log_mu)
    return token_loss(-(advantages * log_pi - beta / 2.0 * log_ratio.square()), log_ratio)


def _within_trust_region(
    log_pi: Tensor, log_mu: Tensor, advantages: Tensor, too_low: Tensor, too_high: Tensor, largest_ratio: float
) -> TokenLoss:
    """-constant(min(r, largest)) A log pi, without the tokens that are too low and pushed down, or too high and up."""
    log_ratio = clamped_log_ratio(log_pi, log_mu).detach()
    clipped_low, clipped_high = (advantages <= 0) & too_low, (advantages > 0) & too_high
    weight = log_ratio.exp().clamp(max=largest_ratio).masked_fill(clipped_low | clipped_high, 0.0)
    return token_loss(
        -(weight * advantages * log_pi),
        log_ratio,
        clipped_low=(advantages < 0) & clipped_low,
        clipped_high=clipped_high,
    )


LOSSES: Mapping[str, Callable[..., TokenLoss]] = {
    "clipped": clipped_policy_loss,
    "gspo": sequence_ratio_loss,
    "cispo": clipped_weight_loss,
    "reinforce": reinforce_loss,
    "importance-sampling": importance_sampling_loss,
    "sapo": soft_gate_loss,
    "gmpo": geometric_mean_loss,
    "dppo-tv": total_variation_loss,
    "dppo-kl": binary_divergence_loss,
    "topr": tapered_loss,
    "vespo": gamma_weight_loss,
    "dro": direct_reward_loss,
}
"""The losses by name. The options of a loss are its keyword arguments, with its own defaults."""

GRADIENT_WITHOUT_ADVANTAGE = frozenset({"dro"})
"""The losses with a gradient where the advantage is 0: DRO's square holds such a token at mu."""
