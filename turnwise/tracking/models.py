"""Policies as MLflow's logged models: an entry with what made it and what it can do, without a copy of its weights.

MLflow calls such a model external. The weights stay in the artifact store, under the digest that the entry names, and
leave it by `turnwise export`. A policy that is registered has its weights in MLflow as well, in the flavour
`mlflow.transformers`.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from turnwise.errors import ConfigurationError
from turnwise.tracking.client import TrackingClient
from turnwise.tracking.library import mlflow
from turnwise.tracking.values import shortened_tags

POLICY = "turnwise.policy"
"""The tag of a logged model that names the policy's artifact."""
EXTERNAL = "mlflow.model.isExternal"
VERSIONS = "mlflow.modelVersions"
"""The tag by which MLflow's list of logged models names their registered versions; `mlflow.register_model` sets it."""
MODEL_TYPE = "policy"
READY = "READY"
BEST = "best"
"""The alias of a registered model's version that the newest ablation found to be the best."""
CARD = "README.md"


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
    models = client.search_logged_models([experiment], f"source_run_id = '{run.info.run_id}'")
    logged_model = next((model for model in models if model.tags.get(POLICY) == policy), None)
    if logged_model is None:
        note = f"The weights are the artifact {policy}. Write them out: turnwise export {run.info.run_id} --to FOLDER"
        logged_model = client.create_logged_model(
            experiment,
            name=_model_name(run.info.run_name),
            source_run_id=run.info.run_id,
            tags=shortened_tags({POLICY: policy, EXTERNAL: "true", "mlflow.note.content": note}),
            params=dict(parameters),
            model_type=MODEL_TYPE,
        )
    if str(logged_model.status) != READY:  # new, or left by a process that was killed here
        client.log_outputs(run.info.run_id, [mlflow().entities.LoggedModelOutput(logged_model.model_id, iteration)])
        client.finalize_logged_model(logged_model.model_id, READY)
    return LoggedPolicy(logged_model.model_id, task_set, task_set_digest)


def register_policy(client: TrackingClient, name: str, run_id: str, policy: str, folder: Path) -> str:
    """Make a run's policy the version `BEST` of the registered model `name`; returns the version.

    Its weights, in `folder` as transformers reads them with a model card, are copied to MLflow:
    `mlflow.transformers.load_model("models:/NAME@best")` is a pipeline, and `mlflow.pyfunc.load_model` answers
    conversations. A policy that is registered under this name already keeps its version.

    Raises ConfigurationError where the run has no logged model of this policy.
    """
    run = client.get_run(run_id)
    models = client.search_logged_models([run.info.experiment_id], f"source_run_id = '{run_id}'")
    logged_model = next((model for model in models if model.tags.get(POLICY) == policy), None)
    if logged_model is None:
        raise ConfigurationError(
            f"a policy must be one that a run was tested with to be registered; {run.info.run_name} has no {policy}",
            "TW-untested-policy",
        )
    if not client.search_registered_models(f"name = '{name}'"):
        client.create_registered_model(name)
    versions = client.search_model_versions(f"name = '{name}'")
    model_version = next((each for each in versions if each.tags.get(POLICY) == policy and each.run_id == run_id), None)
    if model_version is None:
        _add_weights(client, logged_model.model_id, folder, name)
        with _as_default(
            client.tracking_uri
        ):  # MLflow looks the model up in the default store, whatever the client's is
            model_version = client.create_model_version(
                name, f"models:/{logged_model.model_id}", run_id, tags={POLICY: policy}, model_id=logged_model.model_id
            )
    _link_version(client, logged_model, model_version)
    client.set_registered_model_alias(name, BEST, model_version.version)
    return str(model_version.version)


def _add_weights(client: TrackingClient, model_id: str, folder: Path, name: str) -> None:
    """Copy a policy into its logged model, which is external no longer; its source is the registered name."""
    from huggingface_hub import ModelCard

    mlflow()
    from mlflow.models import Model
    from mlflow.transformers import save_model

    with tempfile.TemporaryDirectory() as parent:
        model = Path(parent) / "model"
        save_model(
            str(folder),
            str(model),
            task="llm/v1/chat",
            model_card=ModelCard((folder / CARD).read_text(encoding="utf-8")),  # else it asks the hub for one
            pip_requirements=[
                f"{package}=={version(package).partition('+')[0]}" for package in ("torch", "transformers")
            ],
        )
        description = Model.load(str(model))
        description.flavors["transformers"]["source_model_name"] = name  # else the folder, which is gone soon
        description.save(str(model / "MLmodel"))
        client.log_model_artifacts(model_id, str(model))
    client.delete_logged_model_tag(model_id, EXTERNAL)


def _link_version(client: TrackingClient, logged_model: Any, model_version: Any) -> None:
    """Name a registered version in its logged model, once; `create_model_version` alone leaves the link out."""
    version_entry = {"name": model_version.name, "version": model_version.version}
    version_entries = json.loads(logged_model.tags.get(VERSIONS, "[]"))
    if version_entry not in version_entries:
        client.set_logged_model_tags(logged_model.model_id, {VERSIONS: json.dumps([*version_entries, version_entry])})


@contextmanager
def _as_default(tracking_uri: str) -> Iterator[None]:
    """A block in which this is MLflow's default tracking store."""
    before = mlflow().get_tracking_uri()
    mlflow().set_tracking_uri(tracking_uri)
    try:
        yield
    finally:
        mlflow().set_tracking_uri(before)


def _model_name(name: str) -> str:
    """The name without the characters that MLflow refuses in a model's name."""
    return "".join("-" if letter in "/:.%\"'" else letter for letter in name)
