"""Policies as MLflow's logged models: an entry with what made it and what it can do, without a copy of its weights.

MLflow calls such a model external. The weights stay in the artifact store, under the digest that the entry names, and
leave it by `turnwise export`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from turnwise.tracking.client import TrackingClient
from turnwise.tracking.library import mlflow
from turnwise.tracking.values import shortened_tags

POLICY = "turnwise.policy"
"""The tag of a logged model that names the policy's artifact."""
EXTERNAL = "mlflow.model.isExternal"
MODEL_TYPE = "policy"
READY = "READY"


@dataclass(frozen=True)
class LoggedPolicy:
    """A policy in MLflow, and the task set on which its metrics were measured."""

    id: str
    task_set: str
    task_set_digest: str


def logged_policy(
    client: TrackingClient,
    run: Any,
    policy: str,
    *,
    iteration: int,
    parameters: Mapping[str, str],
    task_set: str,
    task_set_digest: str,
) -> LoggedPolicy:
    """The logged model of the policy that a run ended with after `iteration` updates: the recorded one, or a new one.

    `policy` is the name of its artifact, kind/digest.
    """
    experiment = run.info.experiment_id
    found = client.search_logged_models([experiment], f"source_run_id = '{run.info.run_id}'")
    known = next((model for model in found if model.tags.get(POLICY) == policy), None)
    if known is None:
        note = f"The weights are the artifact {policy}. Write them out: turnwise export {run.info.run_id} --to FOLDER"
        known = client.create_logged_model(
            experiment,
            name=_allowed(run.info.run_name),
            source_run_id=run.info.run_id,
            tags=shortened_tags({POLICY: policy, EXTERNAL: "true", "mlflow.note.content": note}),
            params=dict(parameters),
            model_type=MODEL_TYPE,
        )
    if str(known.status) != READY:  # new, or left by a process that was killed here
        client.log_outputs(run.info.run_id, [mlflow().entities.LoggedModelOutput(known.model_id, iteration)])
        client.finalize_logged_model(known.model_id, READY)
    return LoggedPolicy(known.model_id, task_set, task_set_digest)


def _allowed(name: str) -> str:
    """The name without the characters that MLflow refuses in a model's name."""
    return "".join("-" if letter in "/:.%\"'" else letter for letter in name)
