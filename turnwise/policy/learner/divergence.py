"""How far the policy is from a reference policy, and what that costs.

With d = log pi(t) - log ref(t) of a token that pi sampled, estimates of KL(pi || ref) (Schulman 2020, "Approximating KL
divergence"):

    k1 = d                      unbiased, may be negative
    k2 = d^2 / 2                biased, never negative
    k3 = exp(-d) + d - 1        unbiased, never negative

An unbiased *value* does not give an unbiased *gradient* (arXiv 2512.21852), so the place matters. In expectation over
tokens that pi samples:

    in the loss      L_t + c k(t), differentiated    k1: no gradient at all, the mean of a score: refused
                                                     k2: the gradient of KL(pi || ref)
                                                     k3: the gradient of KL(ref || pi), the other direction (GRPO)
    in the reward    -c k(t) for each reply token    k1: the gradient of KL(pi || ref) (PPO for language models)
                                                     k2, k3: it vanishes to first order where pi is near ref

The default, k2 in the loss, is the one that needs no estimator of returns and has the right gradient. From the second
optimizer step on a batch, tokens are no longer samples of pi and the penalty in the loss is not reweighted for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from turnwise.config.bounds import require_choice, require_number
from turnwise.data.trajectory import TokenSequence
from turnwise.errors import ConfigurationError

if TYPE_CHECKING:  # The configuration reads this file's names, and does not wait for torch.
    import torch

Place = Literal["loss", "reward"]


def k1(log_ratio: torch.Tensor) -> torch.Tensor:
    """d, from d = log pi - log ref; any shape."""
    return log_ratio


def k2(log_ratio: torch.Tensor) -> torch.Tensor:
    """d^2 / 2, from d = log pi - log ref; any shape."""
    return log_ratio.square() / 2.0


def k3(log_ratio: torch.Tensor) -> torch.Tensor:
    """exp(-d) + d - 1, from d = log pi - log ref; any shape."""
    return (-log_ratio).exp() + log_ratio - 1.0


DIVERGENCES: Mapping[str, Callable[[torch.Tensor], torch.Tensor]] = {"k1": k1, "k2": k2, "k3": k3}
"""The estimators by name."""


@dataclass(frozen=True)
class ReferencePenalty:
    """What distance from the reference policy costs. Raises ConfigurationError for what makes no sense."""

    coefficient: float
    """Per nat; above 0."""
    estimator: str = "k2"
    """A name of `DIVERGENCES`."""
    place: Place = "loss"
    """In the loss of the update, or in the rewards, before advantages are estimated: see `reference_rewards`."""

    def __post_init__(self) -> None:
        require_number("reference.coefficient", self.coefficient, above=0, advice="for no penalty leave reference out")
        require_choice("reference.estimator", self.estimator, DIVERGENCES)
        require_choice("reference.place", self.place, ("loss", "reward"))
        if (self.estimator, self.place) == ("k1", "loss"):
            raise ConfigurationError(
                "reference.estimator must be k2 or k3 in the loss; found k1, whose gradient there is that of "
                "log pi(token), zero in expectation: it adds noise and holds nothing back. Set reference.place to "
                "reward, or reference.estimator to k2"
            )


def reference_rewards(
    sequences: Sequence[TokenSequence],
    reference_log_probabilities: Sequence[Sequence[float]],
    penalty: ReferencePenalty,
) -> list[list[float]]:
    """-coefficient x k of every reply token, per sequence: what `CreditBatch.token_rewards` takes.

    pi is the policy that sampled, with the log-probabilities that the sequences carry. `reference_log_probabilities`
    has one number per token of every sequence, at the same temperature; those at observation tokens are not read.
    """
    import torch  # Here, so that the configuration does not wait for it.

    rewards: list[list[float]] = []
    for sequence, reference in zip(sequences, reference_log_probabilities, strict=True):
        if len(reference) != len(sequence.tokens):
            raise ValueError(
                f"there must be one reference log-probability per token; found {len(reference)} for "
                f"{len(sequence.tokens)} tokens"
            )
        pairs = zip(sequence.log_probabilities, reference, sequence.mask, strict=True)
        differences = [of_policy - of_reference for of_policy, of_reference, mask in pairs if mask]
        divergence = DIVERGENCES[penalty.estimator](torch.tensor(differences, dtype=torch.float64))
        rewards.append((-penalty.coefficient * divergence).tolist())
    return rewards
