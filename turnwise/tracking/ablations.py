"""The record of an ablation in MLflow, from plain data: a parent run, and a child run per variant and seed.

tracked = TrackedAblation(Recorder(...), AblationDescription(name, identity, parameters, ...))
child = tracked.open("mt-grpo seed 1", "mt-grpo", 1, parameters)
child.log_iteration(7, {"rollout/success": 0.5})
child.finish(digest)
tracked.close(report, digest)

A run's **identity** is a digest of its configuration. Two ablations that share a variant have one run of it each, so
that each ablation is complete under its own parent; an ablation that is started again finds its existing runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from turnwise.errors import ConfigurationError
from turnwise.store import Reference
from turnwise.store.digests import digest_of
from turnwise.tracking.client import TrackingClient
from turnwise.tracking.database import alone
from turnwise.tracking.finding import BASELINES_FILE, UNCOMMITTED_FILE, BaselinesArtifacts
from turnwise.tracking.library import PARENT, mlflow
from turnwise.tracking.ownership import ownership
from turnwise.tracking.runs import BUDGET, OUTCOMES, SEEDS, Dataset, TrackedRun
from turnwise.tracking.values import flatten, shortened_tags
from turnwise.tracking.views import Chart

COMPARISONS_TABLE = "comparisons.json"
"""The table of an ablation's comparisons among its MLflow artifacts."""
SAME = "with/"
"""Prefix of the parameters that all variants share. MLflow sorts by name, so the differing ones come first."""
COLUMNS = ("test/sampled/success", "test/greedy/success", "validation/sampled/success")
"""The columns of an ablation's saved view in MLflow."""
CHARTS = (
    Chart("LINE", "validation/sampled/success", "On the validation tasks"),
    Chart("LINE", "validation/greedy/success", "On the validation tasks"),
    Chart("BAR", "test/sampled/success", "On the test tasks"),
    Chart("BAR", "test/greedy/success", "On the test tasks"),
    Chart("LINE", "rollout/success", "In training"),
    Chart("LINE", "update/entropy_nats", "In training"),
)
"""The charts of the view: the results first."""


@dataclass(frozen=True)
class AblationDescription:
    """What is recorded of an ablation before any of its runs."""

    name: str
    identity: str
    """The digest of everything that determines its numbers; by it the record is found again."""
    parameters: Mapping[str, Any]
    """Its whole configuration, nested."""
    variants: Sequence[Mapping[str, Any]]
    """The configuration of each variant, nested, from which those parameters are found that differ."""
    tags: Mapping[str, str]
    datasets: Sequence[Dataset]
    diff: str
    """The uncommitted changes, without anything that must stay private; empty if there are none."""


class TrackedAblation:
    """An ablation's parent run and the child runs that are open."""

    def __init__(self, recorder: Recorder, about: AblationDescription) -> None:
        self._recorder, self._about = recorder, about
        self.parent = recorder.parent(about.name, about.identity, about.parameters, about.tags)
        self.children: dict[str, TrackedRun] = {}
        """The runs that were opened, by name."""
        self._log_diff(self.parent)

    def open(self, name: str, variant: str, seed: int, parameters: Mapping[str, Any]) -> TrackedRun:
        """Find or create the child run of one variant and seed; `parameters` are the variant's own, nested."""
        about = self._about
        child = self._recorder.child(
            self.parent,
            name,
            digest_of([about.identity, parameters, seed]),
            differing_first(about.variants, {"variant": variant, "seed": seed, **parameters}),
            {**about.tags, "variant": variant, "seed": str(seed), "params_digest": digest_of(parameters)},
            about.datasets,
        )
        self.children[name] = child
        self._log_diff(child)
        return child

    def compared_with(self, evaluations: Mapping[str, Reference]) -> None:
        """Record the test evaluations of the baseline policies and the warm start, shown next to those of the runs."""
        self.parent.log_text(
            BaselinesArtifacts(evaluations=dict(evaluations)).model_dump_json(indent=1), BASELINES_FILE
        )

    def close(
        self,
        report: Path,
        result_digest: str,
        summary: Mapping[str, float] | None = None,
        outcomes: Sequence[str] = (),
        fault: str = "",
        seeds: Sequence[str] = (),
        budget: Sequence[str] = (),
        finding: str = "",
        comparisons: Mapping[str, Sequence[Any]] | None = None,
    ) -> None:
        """Finish the parent run with the ablation's report, and the figures of its table as metrics.

        `finding` is the description of the run, and stands with a link to the view above the experiment's runs;
        `comparisons`, by column, is a table of the run.

        `outcomes` says which runs were ended early or left out, `seeds` after how many of them comparisons ended,
        `budget` what they came to at the budget that was written down. With a `fault`, which has left runs out, the
        parent run is marked as failed, so that the same ablation can finish it once the fault is mended.
        """
        self.parent.log_artifact(report)
        self.parent.log_summary(summary or {})
        self.parent.save_view(f"{self._about.name}: by variant", COLUMNS, CHARTS)
        if comparisons:
            self.parent.log_table(comparisons, COMPARISONS_TABLE)
        if finding:
            self.parent.describe(self._about.name, finding)
        for tag, sentences in ((OUTCOMES, outcomes), (SEEDS, seeds), (BUDGET, budget)):
            if sentences:
                self.parent.tag(tag, " ".join(sentences))
        if fault:
            self.parent.fail(fault)
        else:
            self.parent.finish(result_digest)

    def _log_diff(self, run: TrackedRun) -> None:
        if self._about.diff and not run.finished:
            run.log_text(self._about.diff, UNCOMMITTED_FILE)


def differing_first(variants: Sequence[Mapping[str, Any]], values: Mapping[str, Any]) -> dict[str, str]:
    """A variant's parameters as a flat mapping, with the names of parameters that all variants share under `with/`.

    Variant, seed and parameters that differ between variants keep their own names.
    """
    flat_variants = [flatten(each) for each in variants]
    own = {name for flat in flat_variants for name in flat if len({each.get(name) for each in flat_variants}) > 1}
    # Options that one variant has and another leaves empty are listed one by one.
    leaves = {name for name in own if not any(other.startswith(f"{name}.") for other in own)}
    return {
        name if name in ("variant", "seed") or name in own else f"{SAME}{name}": value
        for name, value in flatten(values).items()
        if name not in own - leaves
    }


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
            entity = self._find(identity, parent)
            if entity is None:
                created = self._create(name, identity, tags, parent)
                # The lock is per machine: if another machine created the same run meanwhile, all keep the earlier one.
                entity = self._find(identity, parent)
                if entity.info.run_id != created.info.run_id:
                    self._client.delete_run(created.info.run_id)
            run = TrackedRun(self._client, entity)
            if not run.finished:
                run.resume(flatten(parameters), tags)
        return run

    def _find(self, identity: str, parent: TrackedRun | None) -> Any:
        parent_id = None if parent is None else parent.id
        runs = self._client.runs((IDENTITY, identity), self._experiment_id)
        return next((run for run in runs if run.data.tags.get(PARENT) == parent_id), None)

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
        if (experiment_id := self._client.experiment_id(name)) is not None:
            return experiment_id
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
