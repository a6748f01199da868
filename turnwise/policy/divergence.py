"""Estimators of the KL divergence from a reference policy, and the penalty on it.

With d = log pi(t) - log ref(t) of a token that pi sampled, estimates of KL(pi || ref) (Schulman 2020, "Approximating KL
divergence"):

    k1 = d                      unbiased, may be negative
    k2 = d^2 / 2                biased, never negative
    k3 = exp(-d) + d - 1        unbiased, never negative
    k3+                         the value of k3 with the gradient of k2, in the loss alone

An unbiased *value* does not give an unbiased *gradient* (arXiv 2512.21852), so it matters where the penalty is applied.
In expectation over tokens that pi samples:

    in the loss      L_t + c k(t), differentiated    k1: the mean of a score, so the gradient is zero: refused
                                                     k2: the gradient of KL(pi || ref)
                                                     k3: the gradient of KL(ref || pi), the other direction (GRPO)
                                                     r k3 (`reweighted`): that of KL(pi || ref), if r is differentiated
    in the reward    -c k(t) for each reply token    k1: the gradient of KL(pi || ref) (PPO for language models)
                                                     k2, k3: it vanishes to first order where pi is near ref

The default is k2 in the loss: it has the right gradient and needs no estimator of returns. From the second optimizer
step on a batch, tokens are no longer samples of pi, and the penalty in the loss is not reweighted for that. With
`reweighted` it is: the mean over tokens that mu samples of r k3, r = pi / mu, is KL(pi || ref) whatever pi is, and so
is its gradient (DeepSeek-V3.2, arXiv 2512.02556; TRL's `use_bias_correction_kl`). r is the token's, with log r clamped;
TRL's is the sequence's where its loss has that. `k3+` (verl) reports what k3 estimates and descends k2.

The option `clamp` bounds the estimate k3 of a token from above, where it then has no gradient: verl, SkyRL and ROLL
always hold it within 10, which a token reaches when pi makes it 2.6 nats rarer than the reference does; OpenRLHF holds
k1 and k2 there, too, and TRL none. k3 takes d clamped to [-20, 20], as verl and SkyRL do: in float32 the exponential of
more than 88 is infinite.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from turnwise.data.arrays import Numbers, Ragged, SequenceBatch

if TYPE_CHECKING:  # Importing torch takes seconds, and rewards need it only where there is a penalty.
    import torch

    from turnwise.config.optimization import ReferencePenalty

LARGEST_LOG_RATIO = 20.0
"""Largest absolute value, in nats, of a log ratio whose exponential is taken: of the losses, of importance weights, and
of the divergence from a reference."""


def k1(log_ratio: torch.Tensor) -> torch.Tensor:
    """d, from d = log pi - log ref; any shape."""
    return log_ratio


def k2(log_ratio: torch.Tensor) -> torch.Tensor:
    """d^2 / 2, from d = log pi - log ref; any shape."""
    return log_ratio.square() / 2.0


def k3(log_ratio: torch.Tensor) -> torch.Tensor:
    """exp(-d) + d - 1, from d = log pi - log ref, clamped; any shape."""
    clamped = log_ratio.clamp(-LARGEST_LOG_RATIO, LARGEST_LOG_RATIO)
    return (-clamped).exp() + clamped - 1.0


def k3_straight_through(log_ratio: torch.Tensor) -> torch.Tensor:
    """k3, with the gradient of k2, from d = log pi - log ref; any shape."""
    quadratic = k2(log_ratio)
    return k3(log_ratio).detach() + quadratic - quadratic.detach()


DIVERGENCES: Mapping[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "k1": k1,
    "k2": k2,
    "k3": k3,
    "k3+": k3_straight_through,
}
"""The estimators by name."""


def divergence(log_ratio: torch.Tensor, penalty: ReferencePenalty) -> torch.Tensor:
    """The estimate of the penalty's estimator per token, from d = log pi - log ref; any shape."""
    estimate = DIVERGENCES[penalty.estimator](log_ratio)
    return estimate if penalty.clamp is None else estimate.clamp(max=penalty.clamp)


def reference_rewards(
    sequences: SequenceBatch, reference_log_probabilities: Ragged | Numbers, penalty: ReferencePenalty
) -> Numbers:
    """The reward -coefficient x k of every reply token, [reply tokens], as `CreditBatch.token_rewards` takes it.

    pi is the behaviour policy, with the log-probabilities in the sequences. `reference_log_probabilities` has one
    number per token of the sequences, in nats and at the same temperature; those at observation tokens are not read.
    Raises ValueError where the lengths differ.
    """
    import torch

    reference = reference_log_probabilities
    reference = reference.values if isinstance(reference, Ragged) else reference
    if len(reference) != len(sequences.tokens):
        raise ValueError(
            f"there must be one reference log-probability per token; found {len(reference)} for "
            f"{len(sequences.tokens)} tokens"
        )
    log_ratios = torch.from_numpy((sequences.log_probabilities - reference)[sequences.mask])
    rewards: Numbers = (-penalty.coefficient * divergence(log_ratios, penalty)).numpy()
    return rewards
