"""The recorder, which is not cached: writes the results of stages to MLflow once, under explicit run ids.

Cached stages do not run and so cannot log; the recorder reads their metrics from their artifacts instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flows import roster
from flows.prepare import Prepared
from flows.recording.recorded_metrics import evaluation_metrics, metrics_of
from flows.run_state import Iteration, Run
from tasks.credit.credit import read_credit
from tasks.playing import world_code
from tasks.rollout.evaluate import SAMPLED, read_evaluation
from turnwise.config.schema import BESIDE_RESULTS
from turnwise.data.task_sets import panel_digest, panel_file, read_panel
from turnwise.data.trajectory_files import read_trajectories
from turnwise.experiment import Experiment, load
from turnwise.policy.pretrained import pretrained
from turnwise.store import Reference, default_store, run_environment
from turnwise.store.digests import digest_of
from turnwise.store.fingerprint import fingerprint
from turnwise.store.paths import home, project_root
from turnwise.store.withheld import recordable
from turnwise.store.world_identity import world_ingredients
from turnwise.tracking import Dataset, Recorder
from turnwise.tracking import TrackedRun as Recorded
from turnwise.tracking.finding import ARTIFACTS_FILE, PLAYERS_FILE, UNCOMMITTED_FILE, PlayersArtifacts, RunArtifacts
from turnwise.tracking.values import flatten
from turnwise.world import SPLITS, world_class

CONTEXTS = {"train": "training", "validation": "validation", "test": "testing"}
MODULES_OF_PREPARATION = ("tasks.prepare.materials", "tasks.prepare.warm_start")


def tracking_uri(experiment: Experiment) -> str:
    """The configured tracking URI, or a SQLite file in the project's home."""
    return experiment.tracking.uri or f"sqlite:///{home() / 'mlflow.db'}"


def project_tracking_uri() -> str:
    """The tracking URI of the project: the one in params.yaml, or else its own database."""
    return tracking_uri(load(project_root() / "params.yaml"))


COLUMNS = ("test/sampled/success", "test/greedy/success")
"""The columns of an ablation's saved view in MLflow."""


def computing_code(experiment: Experiment) -> str:
    """The fingerprint of all code that determines an ablation's numbers, its world's included."""
    of_iterations = dict.fromkeys(stage.stage.function.__module__ for stage in roster.ROSTER)
    return fingerprint([*MODULES_OF_PREPARATION, *of_iterations, *world_code(experiment)])


class AblationRecord:
    """The MLflow record of an ablation: a parent run, and a child run per variant and seed."""

    def __init__(self, experiment: Experiment, prepared: Prepared) -> None:
        self._experiment, self._prepared = experiment, prepared
        local = None if experiment.tracking.uri else home() / "mlflow"
        self._recorder = Recorder(tracking_uri(experiment), experiment.tracking.experiment, local)
        values = experiment.model_dump(mode="json", exclude={*BESIDE_RESULTS})
        self._pretrained = pretrained(experiment.policy)
        made = {name: str(reference) for name, reference in vars(prepared).items()}
        world = world_ingredients(experiment.world)
        self._identity = digest_of([values, made, world, computing_code(experiment), run_environment.platform()])
        self._parent = self._recorder.parent(experiment.ablation.name, self._identity, values, self._tags())
        self._children: dict[str, Recorded] = {}
        self._configured: dict[str, Experiment] = {}
        self._record_diff(self._parent)

    def open(self, run_name: str, variant: str, seed: int, experiment: Experiment) -> None:
        """Find or create the child run of one variant and seed."""
        values = experiment.model_dump(mode="json", exclude={*BESIDE_RESULTS, "ablation", "variants"})
        child = self._recorder.child(
            self._parent,
            run_name,
            digest_of([self._identity, values, seed]),
            _differing_first(self._experiment, {"variant": variant, "seed": seed, **values}),
            {**self._tags(), "variant": variant, "seed": str(seed), "params_digest": digest_of(values)},
            self._datasets(),
        )
        self._children[run_name], self._configured[run_name] = child, experiment
        self._record_diff(child)

    def iteration(self, run: Run, iteration: Iteration) -> None:
        """Record one iteration's metrics, and a few trajectories if the policy was evaluated after it."""
        child = self._children[run.name]
        if child.finished:
            return
        if iteration.number == 1:
            child.log_iteration(0, evaluation_metrics("validation", run.start, run.start_at_horizon))
        child.log_iteration(iteration.number, metrics_of(iteration))
        if iteration.evaluation is not None:
            self._trace(child, run, iteration)
            if not child.finished:  # else another process has recorded all of them
                self._name_artifacts(child, run)

    def finish(self, run: Run) -> None:
        """Finish a child run: record its test metrics, a few test episodes and the digest of its policy."""
        child = self._children[run.name]
        assert run.test is not None, "the run has not been tested"
        child.log_summary(evaluation_metrics("test", run.test, run.test_at_horizon))
        test = read_evaluation(run.test, SAMPLED)[: self._experiment.tracking.traces]
        child.log_trajectories("test", test, weights=self._weights())
        if not child.finished or child.result == run.policy.digest:
            self._name_artifacts(child, run)
        child.finish(run.policy.digest)

    def compared_with(self, evaluations: Mapping[str, Reference]) -> None:
        """Record the test evaluations of the baseline policies and the warm start, shown next to those of the runs."""
        self._parent.log_text(PlayersArtifacts(evaluations=dict(evaluations)).model_dump_json(indent=1), PLAYERS_FILE)

    def _name_artifacts(self, child: Recorded, run: Run) -> None:
        """Record the references of all artifacts that the run has read and made so far.

        The recorded parameters are the initial ones: what an alarm has changed since follows from them.
        """
        configured = self._configured[run.name]
        made = RunArtifacts(
            variant=run.variant,
            seed=run.seed,
            experiment=configured.model_dump(mode="json", exclude={*BESIDE_RESULTS, "ablation", "variants"}),
            prepared=dict(vars(self._prepared)),
            start=run.start,
            start_at_horizon=run.start_at_horizon,
            iterations=[iteration.artifacts for iteration in run.iterations],
            test=run.test,
            test_at_horizon=run.test_at_horizon,
        )
        child.log_text(made.model_dump_json(indent=1), ARTIFACTS_FILE)

    def fail(self, run_name: str, reason: str) -> None:
        """Mark the child run as failed."""
        if run_name in self._children:
            self._children[run_name].fail(reason)

    def close(self, report: Path, result_digest: str) -> None:
        """Finish the ablation's parent run with its report."""
        self._parent.log_artifact(report)
        self._parent.save_view(f"{self._experiment.ablation.name}: by variant", COLUMNS)
        self._parent.finish(result_digest)

    def _trace(self, child: Recorded, run: Run, iteration: Iteration) -> None:
        """Record trajectories of the batch that this iteration learned from, with their advantages."""
        trajectories = read_trajectories(default_store().folder(iteration.rollout))
        advantages = {index: found.turns for index, found in read_credit(iteration.credit).items()}
        chosen = list(advantages)[: self._experiment.tracking.traces]
        child.log_trajectories(
            f"batch/{iteration.number:04d}",
            [trajectories[index] for index in chosen],
            [advantages[index] for index in chosen],
            self._weights(),
        )

    def _weights(self) -> dict[str, float]:
        return {name: reward.weight for name, reward in self._experiment.rewards.items()}

    def _record_diff(self, run: Recorded) -> None:
        """Record the uncommitted changes, without anything that must stay private: see `turnwise.store.withheld`."""
        if not run.finished and (diff := run_environment.uncommitted_diff()):
            run.log_text(recordable(diff, self._experiment.tracking.new_files), UNCOMMITTED_FILE)

    def _tags(self) -> dict[str, str]:
        prepared = self._prepared
        return {
            **run_environment.code_state(),
            **{f"{split}_panel": prepared.panel(split).digest for split in SPLITS},
            "demonstrations": prepared.demonstrations.digest,
            "warm_start": prepared.warm_start.digest,
            "world_version": world_class(self._experiment.world.name).version,
            **({"pretrained": self._pretrained.content} if self._pretrained else {}),
        }

    def _datasets(self) -> list[Dataset]:
        datasets = []
        for split in SPLITS:
            folder = default_store().folder(self._prepared.panel(split))
            tasks = read_panel(folder, split)
            name = f"{self._experiment.world.name}-{split}"
            source = str(panel_file(folder, split))
            datasets.append(Dataset(name, panel_digest(tasks), CONTEXTS[split], source, len(tasks)))  # type: ignore[arg-type]
        return datasets


SAME = "with/"
"""Prefix of the parameters that all variants share. MLflow sorts by name, so the differing ones come first."""


def _differing_first(experiment: Experiment, values: Mapping[str, Any]) -> dict[str, str]:
    """A variant's parameters as a flat mapping, with the names of parameters that all variants share under `with/`.

    Variant, seed and parameters that differ between variants keep their own names.
    """
    variants = [experiment.variant(name).model_dump(mode="json") for name in experiment.ablation.variants]
    of_variants = [flatten(each) for each in variants]
    own = {name for flat in of_variants for name in flat if len({each.get(name) for each in of_variants}) > 1}
    # Options that one variant has and another leaves empty are listed one by one.
    named = {name for name in own if not any(other.startswith(f"{name}.") for other in own)}
    return {
        name if name in ("variant", "seed") or name in own else f"{SAME}{name}": value
        for name, value in flatten(values).items()
        if name not in own - named
    }
