"""What a run will need at its end is looked at before its first stage: the tracking store, and a published model."""

from __future__ import annotations

from flows.record import tracking_uri
from turnwise.config import Experiment
from turnwise.policy.pretrained import pretrained, pretrained_folder
from turnwise.tracking.database import require_store


def require_ready(experiment: Experiment) -> None:
    """Raise ConfigurationError, before anything is computed, where a later stage would fail for what is known now."""
    require_store(tracking_uri(experiment))
    require_model(experiment)


def require_model(experiment: Experiment) -> None:
    """Raise ConfigurationError where `policy.model` is a published model that cannot be used here."""
    found = pretrained(experiment.policy)
    if found is None:
        return
    from turnwise.policy.published import require_usable

    require_usable(
        pretrained_folder(found), engine=experiment.compute.engine, context_tokens=experiment.agent.context_tokens
    )
