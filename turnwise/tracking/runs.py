"""Runs in MLflow: found again by the identity of their configuration, and written idempotently.

A run's **identity** is a digest of its configuration. Two ablations that share a variant have one run of it each, so
that each ablation is complete under its own parent; an ablation that is started again finds its existing runs.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from turnwise.errors import ConfigurationError
from turnwise.tracking.database import alone, open_client
from turnwise.tracking.library import PARENT, mlflow
from turnwise.tracking.traces import log_traces
from turnwise.tracking.values import (
    METRICS_PER_BATCH,
    PARAMETERS_PER_BATCH,
    TAG_LENGTH,
    batches,
    finite,
    flatten,
    shortened,
)
from turnwise.tracking.views import VIEW, saved_view, view_key

if TYPE_CHECKING:
    from turnwise.data.trajectory import Trajectory

IDENTITY = "turnwise.identity"
RESULT = "turnwise.result"
LATER_RESULT = "turnwise.result.later"
FAILURE = "turnwise.failure"
NOT_FINITE = "not_finite"
DIGEST_LENGTH = 36

_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Dataset:
    """An input of a run, such as a task set: its description, not its rows."""

    name: str
    digest: str
    """Computed by Turnwise; at most 36 characters, the length that MLflow keeps."""
    context: Literal["training", "validation", "testing"]
    source: str
    """Its location: a path or a URI."""
    rows: int | None = None


class Recorder:
    """One experiment of an MLflow store, in which runs are found or created.

    `tracking_uri` is a database (`sqlite:////absolute/mlflow.db`, `postgresql://...`) or a server (`http://...`). A
    missing experiment is created, with its artifacts under `artifact_location`. None leaves the location to the server;
    with a database there is no server and MLflow would take the current folder, so pass a location. Creating a database
    takes some seconds, once.
    """

    def __init__(self, tracking_uri: str, experiment: str, artifact_location: Path | None = None) -> None:
        self.tracking_uri = tracking_uri
        self._client = open_client(tracking_uri)
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
        query = f"tags.`{IDENTITY}` = '{identity}'"
        if parent is not None:
            query += f" and tags.`{PARENT}` = '{parent.id}'"
        found = self._client.search_runs([self._experiment_id], query)
        if parent is None:
            found = [run for run in found if PARENT not in run.data.tags]
        return min(found, key=lambda run: (run.info.start_time, run.info.run_id), default=None)

    def _create(self, name: str, identity: str, tags: Mapping[str, str], parent: TrackedRun | None) -> Any:
        # The identity is set on creation, so that a run which is killed before its next write is found again.
        tags = {IDENTITY: identity, "mlflow.source.name": "turnwise", **_shortened(tags)}
        if parent is not None:
            tags[PARENT] = parent.id
        return self._client.create_run(self._experiment_id, tags=tags, run_name=name)

    def _find_or_make_experiment(self, name: str, artifact_location: Path | None) -> str:
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
                f"(mlflow experiments restore --experiment-id {experiment.experiment_id}) or choose another name"
            )
        return str(experiment.experiment_id)


class TrackedRun:
    """One run of a recorder, with idempotent logging: logging the same again, even from another process, adds nothing.

    Existing records are read and new ones written while the tracking store's lock is held.
    """

    def __init__(self, client: Any, entity: Any) -> None:
        self.id: str = entity.info.run_id
        self.finished: bool = entity.info.status == "FINISHED"
        self._client = client
        self._entity = entity
        self._recorded_steps: dict[str, set[int]] = {}

    @property
    def result(self) -> str | None:
        """The digest of the result with which the run finished; None before."""
        return self._entity.data.tags.get(RESULT)

    def resume(self, parameters: Mapping[str, str], tags: Mapping[str, str]) -> None:
        """Set an unfinished run to RUNNING and record its tags and missing parameters; `parameters` are flat.

        Raises ConfigurationError where a parameter was recorded with another value.
        """
        recorded = self._entity.data.params
        different = [
            f"{key}: {recorded[key]} -> {value}"
            for key, value in parameters.items()
            if recorded.get(key, value) != value
        ]
        if different:
            raise ConfigurationError(
                f"one identity must stand for one set of parameters; run {self.id} was recorded with others: "
                f"{'; '.join(different)}. The identity must digest every parameter that is recorded"
            )
        if self._entity.info.status != "RUNNING":
            self._client.update_run(self.id, status="RUNNING")
        if FAILURE in self._entity.data.tags:
            self._client.delete_tag(self.id, FAILURE)
        entities = mlflow().entities
        self._client.log_batch(self.id, tags=[entities.RunTag(*tag) for tag in _shortened(tags).items()])
        missing = [entities.Param(key, value) for key, value in parameters.items() if key not in recorded]
        for batch in batches(missing, PARAMETERS_PER_BATCH):
            self._client.log_batch(self.id, params=batch)

    def log_iteration(self, iteration: int, metrics: Mapping[str, float]) -> None:
        """Record one iteration's metrics in one write, with the iteration's number as the step.

        A value already recorded at this step stays. Values that are not finite are left out, and their number is
        recorded as the iteration's metric `not_finite`.
        """
        values = finite(metrics)
        if len(values) < len(metrics):
            values[NOT_FINITE] = float(len(metrics) - len(values))
        with self._unfinished() as unfinished:
            if unfinished:
                self._forget_steps_if_another_recorded(values)
                new = {name: value for name, value in values.items() if iteration not in self._steps(name)}
                self._log_metrics(new, iteration)
                for name in values:
                    self._steps(name).add(iteration)

    def log_summary(self, metrics: Mapping[str, float]) -> None:
        """Record metrics of the whole run, at step 0; one that is not finite (an interval over one seed) is left out.

        Unlike an iteration's metrics they may change after the end, when the same results are summarised otherwise.
        """
        values = finite(metrics)
        with alone(self._client.tracking_uri):
            recorded = self._client.get_run(self.id).data.metrics
            self._log_metrics({name: value for name, value in values.items() if recorded.get(name) != value}, step=0)

    def log_dataset(self, dataset: Dataset) -> None:
        """Record an input of an unfinished run. Raises ConfigurationError for a digest that MLflow would cut."""
        if self.finished:
            return
        if len(dataset.digest) > DIGEST_LENGTH:
            raise ConfigurationError(
                f"a dataset's digest must have at most {DIGEST_LENGTH} characters; "
                f"{dataset.name} has one of {len(dataset.digest)}: {dataset.digest}"
            )
        entities = mlflow().entities
        entry = entities.Dataset(
            dataset.name,
            dataset.digest,
            source_type="local",
            source=json.dumps({"uri": dataset.source}),
            profile=None if dataset.rows is None else json.dumps({"num_rows": dataset.rows}),
        )
        context = entities.InputTag("mlflow.data.context", dataset.context)
        with alone(self._client.tracking_uri):
            self._client.log_inputs(self.id, [entities.DatasetInput(entry, [context])])

    def log_artifact(self, path: Path) -> None:
        """Add a file to the run's MLflow artifacts under its own name, replacing an earlier one of that name."""
        self._client.log_artifact(self.id, str(path))

    def log_text(self, text: str, name: str) -> None:
        """Add a text file to the run's MLflow artifacts, e.g. `uncommitted.diff`, replacing an earlier one."""
        self._client.log_text(self.id, text, name)

    def save_view(self, name: str, columns: Sequence[str]) -> None:
        """Save a view (*Views* on the experiment's page): this run's children by variant, these metrics as columns."""
        value = saved_view(name, self._entity.info.start_time, self.id, columns)
        self._client.set_experiment_tag(self._entity.info.experiment_id, f"{VIEW}{view_key(self.id)}", value)

    def log_trajectories(
        self,
        label: str,
        trajectories: Sequence[Trajectory],
        advantages: Sequence[Sequence[float]] | None = None,
        weights: Mapping[str, float] | None = None,
    ) -> None:
        """Record trajectories as traces, with one span per turn: see `turnwise.tracking.traces`.

        `label` says when they were sampled, e.g. `validation/0005`; `advantages` has one number per turn of each
        trajectory; with `weights`, by reward, each trace shows its weighted return.
        """
        with self._unfinished() as unfinished:
            if unfinished:
                log_traces(self._client, self._entity, label, trajectories, advantages, weights)

    def finish(self, result_digest: str) -> None:
        """Mark the run as finished with this result; afterwards only MLflow artifacts and summaries can be added.

        Where it has already finished with another result, the first one stays, with a warning.
        """
        with self._unfinished() as unfinished:
            if not unfinished:
                self._compare_result(result_digest)
                return
            self._client.set_tag(self.id, RESULT, result_digest)
            self._client.set_terminated(self.id, "FINISHED")
            self._read_again()

    def fail(self, reason: str) -> None:
        """Mark the run as failed, for this reason; opening a run of the same identity resumes it."""
        with self._unfinished() as unfinished:
            if unfinished:
                self._client.set_tag(self.id, FAILURE, shortened(reason, TAG_LENGTH))
                self._client.set_terminated(self.id, "FAILED")

    @contextmanager
    def _unfinished(self) -> Iterator[bool]:
        """Hold the lock and yield whether the run is unfinished, read afresh: another process may have finished it."""
        if self.finished:
            yield False
            return
        with alone(self._client.tracking_uri):
            self._read_again()
            yield not self.finished

    def _read_again(self) -> None:
        self._entity = self._client.get_run(self.id)
        self.finished = self._entity.info.status == "FINISHED"

    def _forget_steps_if_another_recorded(self, names: Iterable[str]) -> None:
        """Drop the cache of recorded steps where another process has added to them.

        Checking one metric is enough, since an iteration's metrics are written together.
        """
        name = next(iter(names), None)
        known = None if name is None else self._recorded_steps.pop(name, None)
        if name is not None and known is not None and self._steps(name) != known:
            self._recorded_steps.clear()

    def _compare_result(self, result_digest: str) -> None:
        recorded = self._entity.data.tags.get(RESULT)
        if recorded == result_digest:
            return
        self._client.set_tag(self.id, LATER_RESULT, result_digest)
        _logger.warning(
            "the same configuration must give the same result; MLflow run %s finished with %s, and now it is %s: "
            "the code, the machine or the number of threads differs. The run keeps what was recorded first",
            self.id,
            recorded,
            result_digest,
        )

    def _log_metrics(self, metrics: Mapping[str, float], step: int) -> None:
        milliseconds = int(time.time() * 1000)
        entries = [mlflow().entities.Metric(name, value, milliseconds, step) for name, value in metrics.items()]
        for batch in batches(entries, METRICS_PER_BATCH):
            self._client.log_batch(self.id, metrics=batch)

    def _steps(self, name: str) -> set[int]:
        """The steps at which a metric is recorded. Cached, and read again when another process has added to it."""
        if name not in self._recorded_steps:
            known = name in self._entity.data.metrics
            history = self._client.get_metric_history(self.id, name) if known else []
            self._recorded_steps[name] = {metric.step for metric in history}
        return self._recorded_steps[name]


def _shortened(tags: Mapping[str, str]) -> dict[str, str]:
    return {key: shortened(value, TAG_LENGTH) for key, value in tags.items()}
