"""What ends an update: an engine that held other weights, and weights that are not finite."""

from __future__ import annotations

import torch
from transformers import PreTrainedModel

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


def require_finite(model: PreTrainedModel) -> None:
    """Raise NotFiniteError where the last step made weights whose logits are not finite.

    The loss would show it only one batch later, when a policy that cannot be sampled from has been saved.
    """
    with torch.no_grad():
        logits = model(input_ids=torch.arange(1, 5, device=model.device).unsqueeze(0)).logits
    if not bool(torch.isfinite(logits).all()):
        raise NotFiniteError("the policy's logits must be finite after an update; they are not")
