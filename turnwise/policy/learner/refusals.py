"""What a learner refuses: weights that the engine did not have, weights that are not finite, and capped logits."""

from __future__ import annotations

import torch
from transformers import PreTrainedModel

from turnwise.errors import ConfigurationError, MismatchError, NotFiniteError


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


def require_plain_output_layer(model: PreTrainedModel) -> None:
    """Raise ConfigurationError for a model that caps or scales its logits, since its loss would be wrong."""
    with torch.no_grad():
        tokens = torch.arange(1, 5, device=model.device).unsqueeze(0)
        hidden = model.base_model(input_ids=tokens, use_cache=False).last_hidden_state
        if not torch.allclose(model.get_output_embeddings()(hidden), model(input_ids=tokens, use_cache=False).logits):
            raise ConfigurationError(
                f"a policy's logits must be its output layer applied to its last hidden state; those of "
                f"{type(model).__name__} are not (it caps or scales them): choose another architecture"
            )
