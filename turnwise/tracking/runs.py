"""A run in MLflow, written idempotently: what is recorded already is not recorded again."""

from __future__ import annotations

import json
import logging
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from turnwise.data.outcomes import EarlyEnd
from turnwise.errors import ConfigurationError
from turnwise.store import Reference
from turnwise.tracking.client import TrackingClient
from turnwise.tracking.database import alone
from turnwise.tracking.library import mlflow
from turnwise.tracking.models import LoggedPolicy, logged_policy
from turnwise.tracking.ownership import KILLED, ownership
from turnwise.tracking.traces import log_traces
from turnwise.tracking.values import (
    METRICS_PER_BATCH,
    PARAMETERS_PER_BATCH,
    TAG_LENGTH,
    batches,
    finite,
    shortened,
    shortened_tags,
)
from turnwise.tracking.views import VIEW, Chart, saved_view, view_address, view_key, with_entry

if TYPE_CHECKING:
    from turnwise.data.trajectory import Trajectory

RESULT = "turnwise.result"
LATER_RESULT = "turnwise.result.later"
FAILURE = "turnwise.failure"
START_WARNING = "turnwise.start"
"""The tag that says why a run's reinforcement has nothing to begin with; only such a run has it."""
ENDED = "turnwise.ended"
"""The tag that says when and by what a guard or an alarm has ended a run; only such a run has it, and the next two."""
ENDED_ITERATION = "turnwise.ended.iteration"
ENDED_BY = "turnwise.ended.by"
LEFT_OUT = "turnwise.left_out"
"""The tag that names the fault (`mismatch`, `not_finite`) that has left a run out of every comparison."""
OUTCOMES = "turnwise.outcomes"
"""The tag of an ablation that says which of its runs were ended early or left out."""
SEEDS = "turnwise.seeds"
"""The tag of an ablation that says after how many seeds its comparisons were decided, where seeds were added."""
BUDGET = "turnwise.budget"
"""The tag of an ablation that says what its comparisons came to at the budget that was written down."""
WRITER = "turnwise.writer"
"""The tag that names who has written a run's metrics last: an id of one `TrackedRun` of one process."""
NOTE = "mlflow.note.content"
"""MLflow's tag of a description, in Markdown."""
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


@dataclass(frozen=True)
class IterationMetrics:
    """The metrics of one iteration, as they wait to be recorded."""

    number: int
    metrics: Mapping[str, float]
    milliseconds: int = field(default_factory=lambda: int(time.time() * 1000))
    """When the iteration ended, in milliseconds since 1970."""


class TrackedRun:
    """One run of a recorder, with idempotent logging: logging the same again, even from another process, adds nothing.

    Existing records are read and new ones written while the tracking store's lock is held.
    """

    def __init__(self, client: TrackingClient, entity: Any) -> None:
        self.id: str = entity.info.run_id
        self.finished: bool = entity.info.status == "FINISHED"
        self._client = client
        self._entity = entity
        self._recorded_steps: dict[str, set[int]] = {}
        self._own_id = secrets.token_hex(8)

    @property
    def result(self) -> str | None:
        """The digest of the result with which the run finished; None before."""
        return self._entity.data.tags.get(RESULT)

    def resume(self, parameters: Mapping[str, str], tags: Mapping[str, str]) -> None:
        """Set an unfinished run to RUNNING and record its tags and missing parameters; `parameters` are flat.

        Raises ConfigurationError where a parameter was recorded with another value.
        """
        recorded_parameters = self._entity.data.params
        different = [
            f"{key}: {recorded_parameters[key]} -> {value}"
            for key, value in parameters.items()
            if recorded_parameters.get(key, value) != value
        ]
        if different:
            raise ConfigurationError(
                f"one identity must stand for one set of parameters; run {self.id} was recorded with others: "
                f"{'; '.join(different)}. The identity must digest every parameter that is recorded",
                "TW-repeated-identity",
            )
        for tag in (FAILURE, LEFT_OUT, OUTCOMES, SEEDS, BUDGET):
            if tag in self._entity.data.tags:
                self._client.delete_tag(self.id, tag)
        entities = mlflow().entities
        all_tags = {**shortened_tags(tags), **ownership(self._client.tracking_uri)}
        self._client.log_batch(self.id, tags=[entities.RunTag(*tag) for tag in all_tags.items()])
        # Last: a run that is RUNNING under the token of a dead process would be closed.
        if self._entity.info.status != "RUNNING":
            self._client.update_run(self.id, status="RUNNING")
        missing = [entities.Param(key, value) for key, value in parameters.items() if key not in recorded_parameters]
        for batch in batches(missing, PARAMETERS_PER_BATCH):
            self._client.log_batch(self.id, params=batch)

    def log_iteration(self, iteration: int, metrics: Mapping[str, float]) -> None:
        """Record one iteration's metrics in one write: see `log_iterations`."""
        self.log_iterations([IterationMetrics(iteration, metrics)])

    def log_iterations(self, iterations: Sequence[IterationMetrics]) -> None:
        """Record the metrics of several iterations in one write, each with its number as the step.

        A value already recorded at a step stays. Values that are not finite are left out, and their number is recorded
        as the iteration's metric `not_finite`. The cost does not grow with the number of recorded iterations.
        """
        with self._unfinished() as unfinished:
            if not unfinished:
                return
            self._become_the_writer()
            entries = []
            for each in iterations:
                values = finite(each.metrics)
                if len(values) < len(each.metrics):
                    values[NOT_FINITE] = float(len(each.metrics) - len(values))
                new = {name: value for name, value in values.items() if each.number not in self._steps(name)}
                entries += _entries(new, each.number, each.milliseconds)
                for name in values:
                    self._steps(name).add(each.number)
            self._log_metrics(entries)

    def log_policy(
        self, policy: Reference, iteration: int, parameters: Mapping[str, str], task_set: Dataset
    ) -> LoggedPolicy | None:
        """Record the policy that the run ended with as a logged model, without its weights; None for a finished run.

        `iteration` is the number of its updates; `task_set` is what its metrics are measured on.
        """
        with self._unfinished() as unfinished:
            if not unfinished:
                return None
            return logged_policy(
                self._client,
                self._entity,
                str(policy),
                iteration=iteration,
                parameters=parameters,
                task_set=task_set.name,
                task_set_digest=task_set.digest,
            )

    def log_summary(self, metrics: Mapping[str, float], policy: LoggedPolicy | None = None) -> None:
        """Record metrics of the whole run, at step 0; one that is not finite (an interval over one seed) is left out.

        Unlike an iteration's metrics they may change after the end, when the same results are summarised otherwise.
        With `policy` they are shown with that logged model, too.
        """
        values = finite(metrics)
        with alone(self._client.tracking_uri):
            recorded_metrics = self._client.run(self.id).data.metrics
            new = {name: value for name, value in values.items() if recorded_metrics.get(name) != value}
            self._log_metrics(_entries(new, 0, int(time.time() * 1000), policy))

    def log_dataset(self, dataset: Dataset) -> None:
        """Record an input of an unfinished run. Raises ConfigurationError for a digest that MLflow would cut."""
        if self.finished:
            return
        if len(dataset.digest) > DIGEST_LENGTH:
            raise ConfigurationError(
                f"a dataset's digest must have at most {DIGEST_LENGTH} characters; "
                f"{dataset.name} has one of {len(dataset.digest)}: {dataset.digest}",
                "TW-long-digest",
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
        if self._client.content(self._entity, path.name) != path.read_bytes():
            self._client.log_artifact(self.id, str(path))

    def log_text(self, text: str, name: str) -> None:
        """Add a text file to the run's MLflow artifacts, e.g. `uncommitted.diff`, replacing an earlier one."""
        if self._client.content(self._entity, name) != text.encode():
            self._client.log_text(self.id, text, name)

    def log_table(self, columns: Mapping[str, Sequence[Any]], name: str) -> None:
        """Record a table of an unfinished run, by column; `mlflow.load_table(name)` has that of all runs together.

        A table of this name that the run has already stays: its rows are results.
        """
        with self._unfinished() as unfinished:
            if unfinished and self._client.content(self._entity, name) is None:
                self._client.log_table(self.id, dict(columns), name)

    def save_view(self, name: str, columns: Sequence[str], charts: Sequence[Chart]) -> None:
        """Save a view (*Views* on the experiment's page): this run's children by variant, these metrics as columns."""
        value = saved_view(name, self._entity.info.start_time, self.id, columns, charts)
        self._client.tag_experiment(self._entity.info.experiment_id, f"{VIEW}{view_key(self.id)}", value)

    def describe(self, name: str, finding: str) -> None:
        """Have an unfinished run described by what it has found, also above the list of the experiment's runs.

        There the newest comes first, with a link to the run's view; what others have written there stays. The name
        comes before any Markdown: MLflow's first page shows the beginning of the description as plain text.
        """
        if self.finished:
            return
        self.tag(NOTE, finding)
        experiment = self._entity.info.experiment_id
        entry = f"{name}: {finding} [Curves and table]({view_address(experiment, self.id)})"
        before = self._client.get_experiment(experiment).tags.get(NOTE, "")
        self._client.tag_experiment(experiment, NOTE, with_entry(entry, view_key(self.id), before))

    def log_trajectories(
        self,
        label: str,
        trajectories: Sequence[Trajectory],
        advantages: Sequence[Sequence[float]] | None = None,
        weights: Mapping[str, float] | None = None,
        policy: LoggedPolicy | None = None,
    ) -> None:
        """Record trajectories as traces, with one span per turn: see `turnwise.tracking.traces`.

        `label` says when they were sampled, e.g. `validation/0005`; `advantages` has one number per turn of each
        trajectory; with `weights`, by reward, each trace shows its weighted return; with `policy` they are shown with
        that logged model, too.
        """
        model = None if policy is None else policy.id
        with self._unfinished() as unfinished:
            if unfinished:
                log_traces(self._client, self._entity, label, trajectories, advantages, weights, model)

    def mark_ended(self, end: EarlyEnd) -> None:
        """Record when and by what a guard or an alarm has ended the run: the tags `turnwise.ended...`."""
        self.tag(ENDED, f"after {end.when}, by {end.reason}")
        self.tag(ENDED_ITERATION, str(end.iteration))
        self.tag(ENDED_BY, end.reason)

    def tag(self, name: str, text: str) -> None:
        """Set a tag of an unfinished run; a text that is too long for MLflow is shortened."""
        with self._unfinished() as unfinished:
            if unfinished:
                self._client.set_tag(self.id, name, shortened(text, TAG_LENGTH))

    def leave_out(self, fault: str, reason: str) -> None:
        """Mark the run as failed by a fault, for which it is left out of every comparison: see `fail`."""
        self.tag(LEFT_OUT, fault)
        self.fail(reason)

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

    def kill(self) -> None:
        """Mark an unfinished run as killed; opening a run of the same identity resumes it."""
        with self._unfinished() as unfinished:
            if unfinished and self._entity.info.status == "RUNNING":
                self._client.set_terminated(self.id, KILLED)

    @contextmanager
    def _unfinished(self) -> Iterator[bool]:
        """Hold the lock and yield whether the run is unfinished, read afresh: another process may have finished it."""
        if self.finished:
            yield False
            return
        with alone(self._client.tracking_uri):
            self._read_again()
            owner_tags = ownership(self._client.tracking_uri)
            if self._entity.info.status == KILLED:  # with another process that had it open, too
                for tag in owner_tags.items():
                    self._client.set_tag(self.id, *tag)
                self._client.update_run(self.id, status="RUNNING")
            yield not self.finished

    def _read_again(self) -> None:
        self._entity = self._client.run(self.id)
        self.finished = self._entity.info.status == "FINISHED"

    def _become_the_writer(self) -> None:
        """Drop the cache of recorded steps where another process may have added to them since; from now on, others do.

        The tag is written before any metric, so that whoever finds its own knows that nobody else has written since.
        """
        if self._entity.data.tags.get(WRITER) != self._own_id:
            self._recorded_steps.clear()
            self._client.set_tag(self.id, WRITER, self._own_id)

    def _compare_result(self, result_digest: str) -> None:
        recorded_digest = self._entity.data.tags.get(RESULT)
        if recorded_digest == result_digest:
            return
        self._client.set_tag(self.id, LATER_RESULT, result_digest)
        _logger.warning(
            "the same configuration must give the same result; MLflow run %s finished with %s, and now it is %s: "
            "the code, the machine or the number of threads differs. The run keeps what was recorded first",
            self.id,
            recorded_digest,
            result_digest,
        )

    def _log_metrics(self, entries: Sequence[Any]) -> None:
        for batch in batches(entries, METRICS_PER_BATCH):
            self._client.log_batch(self.id, metrics=batch)

    def _steps(self, name: str) -> set[int]:
        """The steps at which a metric is recorded. Cached, and read again when another process has added to it."""
        if name not in self._recorded_steps:
            is_recorded = name in self._entity.data.metrics
            history = self._client.get_metric_history(self.id, name) if is_recorded else []
            self._recorded_steps[name] = {metric.step for metric in history}
        return self._recorded_steps[name]


def _entries(
    metrics: Mapping[str, float], step: int, milliseconds: int, policy: LoggedPolicy | None = None
) -> list[Any]:
    model_fields = (policy.id, policy.task_set, policy.task_set_digest) if policy is not None else ()
    # MLflow is imported within, so that a repeat, which has nothing to record, does without it.
    return [mlflow().entities.Metric(name, value, milliseconds, step, *model_fields) for name, value in metrics.items()]
