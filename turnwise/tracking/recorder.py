"""The runs of one MLflow experiment, found again by the identity of their configuration.

A run's **identity** is a digest of its configuration. Two ablations that share a variant have one run of it each, so
that each ablation is complete under its own parent; an ablation that is started again finds its existing runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from turnwise.errors import ConfigurationError
from turnwise.tracking.client import TrackingClient
from turnwise.tracking.database import alone
from turnwise.tracking.library import PARENT, mlflow
from turnwise.tracking.ownership import ownership
from turnwise.tracking.runs import Dataset, TrackedRun
from turnwise.tracking.values import flatten, shortened_tags

IDENTITY = "turnwise.identity"


class Recorder:
    """One experiment of an MLflow store, in which runs are found or created.

    `tracking_uri` is a database (`sqlite:////absolute/mlflow.db`, `postgresql://...`) or a server (`http://...`). A
    missing experiment is created, with its artifacts under `artifact_location`. None leaves the location to the server;
    with a database there is no server and MLflow would take the current folder, so pass a location. Creating a database
    takes some seconds, once.
    """

    def __init__(self, tracking_uri: str, experiment: str, artifact_location: Path | None = None) -> None:
        self.tracking_uri = tracking_uri
        self._client = TrackingClient(tracking_uri)
        self._experiment_id = self._find_or_make_experiment(experiment, artifact_location)

    def parent(
        self, name: str, identity: str, parameters: Mapping[str, Any], tags: Mapping[str, str] | None = None
    ) -> TrackedRun:
        """The parent run of one ablation: that with this identity, or a new one. Raises ConfigurationError."""
        return self._open(name, identity, parameters, tags or {}, parent=None)

    def child(
        self,
        parent: TrackedRun,
        name: str,
        identity: str,
        parameters: Mapping[str, Any],
        tags: Mapping[str, str] | None = None,
        datasets: Sequence[Dataset] = (),
    ) -> TrackedRun:
        """The run of one variant and seed under its parent: that with this identity, or a new one.

        A run that was killed or has failed is set to RUNNING again; a finished run stays unchanged. Raises
        ConfigurationError where the parameters differ from those recorded under the same identity.
        """
        run = self._open(name, identity, parameters, tags or {}, parent)
        for dataset in datasets:
            run.log_dataset(dataset)
        return run

    def _open(
        self,
        name: str,
        identity: str,
        parameters: Mapping[str, Any],
        tags: Mapping[str, str],
        parent: TrackedRun | None,
    ) -> TrackedRun:
        with alone(self.tracking_uri):
            found = self._find(identity, parent)
            if found is None:
                created = self._create(name, identity, tags, parent)
                # The lock is per machine: if another machine created the same run meanwhile, all keep the earlier one.
                found = self._find(identity, parent)
                if found.info.run_id != created.info.run_id:
                    self._client.delete_run(created.info.run_id)
            run = TrackedRun(self._client, found)
            if not run.finished:
                run.resume(flatten(parameters), tags)
        return run

    def _find(self, identity: str, parent: TrackedRun | None) -> Any:
        of_parent = None if parent is None else parent.id
        found = self._client.runs((IDENTITY, identity), self._experiment_id)
        return next((run for run in found if run.data.tags.get(PARENT) == of_parent), None)

    def _create(self, name: str, identity: str, tags: Mapping[str, str], parent: TrackedRun | None) -> Any:
        # Set on creation, so that a run which is killed before its next write is found again, and closed.
        tags = {
            IDENTITY: identity,
            "mlflow.source.name": "turnwise",
            **shortened_tags(tags),
            **ownership(self.tracking_uri),
        }
        if parent is not None:
            tags[PARENT] = parent.id
        return self._client.create_run(self._experiment_id, tags=tags, run_name=name)

    def _find_or_make_experiment(self, name: str, artifact_location: Path | None) -> str:
        if (known := self._client.experiment_id(name)) is not None:
            return known
        exceptions = mlflow().exceptions
        experiment = self._client.get_experiment_by_name(name)
        if experiment is None:
            location = None if artifact_location is None else artifact_location.absolute().as_uri()
            try:
                return str(self._client.create_experiment(name, location))
            except exceptions.MlflowException as error:
                if error.error_code != "RESOURCE_ALREADY_EXISTS":
                    raise
                experiment = self._client.get_experiment_by_name(name)
        if experiment.lifecycle_stage == "deleted":
            raise ConfigurationError(
                f"the MLflow experiment must not be deleted; {name!r} is: restore it "
                f"(mlflow experiments restore --experiment-id {experiment.experiment_id}) or choose another name",
                "TW-deleted-experiment",
            )
        return str(experiment.experiment_id)
