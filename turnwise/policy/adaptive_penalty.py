"""The coefficient of the penalty for divergence, adapted between iterations so that the divergence nears a target.

    beta_(n+1) = beta_n (1 + clip(KL_n / target - 1, -0.2, 0.2) min(samples_n / horizon, 1))

KL_n is the mean estimate of the penalty per reply token in iteration n, samples_n the trajectories (or turns) of its
batch. beta_1 is the coefficient of the configuration.

Paper: Ziegler et al. (arXiv 1909.08593, section 2.2), whose horizon is 10,000 episodes; verl's `kl_ctrl: adaptive` and
OpenRLHF's. What differs: a batch beyond the horizon counts as one horizon, since five of them would make the
coefficient negative; they adapt a penalty in the reward, here it is the one in the loss, whose divergence is that
of the update. The coefficient is a metric of the policy that was trained with it, so that a resumed run, or one that an
alarm has returned to an earlier policy, goes on with the coefficient that belongs to that policy.

Bias: the objective moves while it is optimised. No fixed coefficient has the same optimum.
"""

from __future__ import annotations

from collections.abc import Mapping

from turnwise.config.optimization import ReferencePenalty

COEFFICIENT = "kl_coefficient"
"""The metric of the coefficient that an update was made with."""
NEXT_COEFFICIENT = "kl_coefficient_next"
"""The metric of the coefficient of the update that follows."""
LARGEST_ERROR = 0.2


def penalty_after(penalty: ReferencePenalty, metrics: Mapping[str, float]) -> ReferencePenalty:
    """The penalty with the coefficient that follows from the metrics of the policy that is to be trained.

    As it is where it does not adapt, or the policy is the one that the run began with.
    """
    if penalty.adaptive is None or NEXT_COEFFICIENT not in metrics:
        return penalty
    return penalty.changed(coefficient=metrics[NEXT_COEFFICIENT])


def coefficient_metrics(penalty: ReferencePenalty | None, divergence: float, samples: int) -> dict[str, float]:
    """The coefficient that was used and the one that follows, from the mean `divergence` in nats; none without both."""
    if penalty is None or penalty.adaptive is None:
        return {}
    error = min(max(divergence / penalty.adaptive.target - 1.0, -LARGEST_ERROR), LARGEST_ERROR)
    following = penalty.coefficient * (1.0 + error * min(samples / penalty.adaptive.horizon, 1.0))
    return {COEFFICIENT: penalty.coefficient, NEXT_COEFFICIENT: following}
