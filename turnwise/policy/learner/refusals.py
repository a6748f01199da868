"""What a learner refuses: weights that the engine did not have, and weights that are not finite."""

from __future__ import annotations

import torch

from turnwise.errors import MismatchError, NotFiniteError


def require_match(mean: float, bound: float) -> None:
    """Raise MismatchError where the learner's log-probabilities are too far from the engine's: `mean` is in nats."""
    if not mean <= bound:
        raise MismatchError(
            "the learner must give the sampled tokens the log-probabilities that the engine sampled them with; the "
            f"mean difference is {mean:.3g} nats per token, the bound {bound:g}: the engine held other weights "
            "than the learner, or sampled at another temperature. Load the learner's policy into the engine before "
            "the rollout; for an engine of low precision raise maximum_mismatch"
        )


def require_finite(entropies: torch.Tensor) -> None:
    """Raise NotFiniteError where the last step made weights whose logits are not finite: no more are their entropies.

    The loss would show it only one batch later, when a policy that cannot be sampled from has been saved.
    """
    if not bool(torch.isfinite(entropies).all()):
        raise NotFiniteError("the policy's logits must be finite after an update; they are not")
