"""Policy-gradient losses by name, as pure functions of tensors.

Per reply token t, with r_t = exp(log pi(t) - log mu(t)) and the advantage A_t, two families:

    `turnwise.policy.learner.ratio_losses`       the ratio is differentiated, and bounded by a clip or a gate
    `turnwise.policy.learner.weighted_losses`    log pi is differentiated, times a constant weight that is bounded

mu is the behaviour policy, the one that sampled. Its log-probabilities are the engine's or, where the engine's mismatch
is corrected for (`turnwise.policy.learner.importance`), those that the learner recomputed. Each function names its
paper and what differs from it.

log r_t is clamped to [-20, 20], as in verl, SkyRL and OpenRLHF (none of the papers says so): exp(20) is 5e8, and beyond
exp(88) float32 knows only infinity, which a clip multiplies by zero. A ratio that is further off has no gradient.

All take the same five tensors, so that they are interchangeable; only those with a ratio of the sequence read
`sequence`. The loss is returned per token; `turnwise.policy.learner.update` says how tokens are averaged.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from turnwise.policy.learner.ratio_losses import (
    clipped_policy_loss,
    geometric_mean_loss,
    importance_sampling_loss,
    sequence_ratio_loss,
    soft_gate_loss,
)
from turnwise.policy.learner.token_loss import TokenLoss
from turnwise.policy.learner.weighted_losses import (
    binary_divergence_loss,
    clipped_weight_loss,
    direct_reward_loss,
    gamma_weight_loss,
    reinforce_loss,
    tapered_loss,
    total_variation_loss,
)

__all__ = [
    "GRADIENT_WITHOUT_ADVANTAGE",
    "LOSSES",
    "TokenLoss",
    "binary_divergence_loss",
    "clipped_policy_loss",
    "clipped_weight_loss",
    "direct_reward_loss",
    "gamma_weight_loss",
    "geometric_mean_loss",
    "importance_sampling_loss",
    "reinforce_loss",
    "sequence_ratio_loss",
    "soft_gate_loss",
    "tapered_loss",
    "total_variation_loss",
]

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
