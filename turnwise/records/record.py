"""What MLflow records of an ablation: read from the experiment, the artifacts and the runs, written by
`turnwise.tracking`.

Cached stages do not run and so cannot log: their metrics are read from their artifacts here, which is never cached.
"""

from __future__ import annotations

import functools
import json
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Literal, ParamSpec

from turnwise.config.schema import BESIDE_RESULTS
from turnwise.data.metrics import episode_value
from turnwise.data.task_sets import read_task_set, task_set_digest, task_set_file
from turnwise.data.trajectory import Trajectory
from turnwise.data.trajectory_files import GREEDY, SAMPLED, read_credit, read_evaluation
from turnwise.errors import ConfigurationError, TrackingUnreachable, TrainingEnded
from turnwise.experiment import Experiment, load
from turnwise.policy.pretrained import pretrained
from turnwise.project import home, project_root, start_folder
from turnwise.records.metrics import evaluation_metrics, metrics_of
from turnwise.store import Reference, default_store, run_environment
from turnwise.store.default import use_storage
from turnwise.store.digests import digest_of
from turnwise.store.plugin_identity import world_ingredients
from turnwise.store.sqlite_files import sqlite_address, sqlite_file
from turnwise.store.withheld import recordable
from turnwise.tracking import Dataset, Recorder, TrackedRun
from turnwise.tracking.ablations import AblationDescription, TrackedAblation
from turnwise.tracking.database import has_own_artifacts, require_server, require_store
from turnwise.tracking.finding import ARTIFACTS_FILE, RecordedRun, RunArtifacts, find_runs
from turnwise.tracking.locations import HOME
from turnwise.tracking.ownership import close_abandoned
from turnwise.tracking.runs import START_WARNING, IterationMetrics
from turnwise.training_runs.state import Iteration, Prepared, Run
from turnwise.world import SPLITS, Split, world_class

CONTEXTS: Mapping[Split, Literal["training", "validation", "testing"]] = {
    "train": "training",
    "validation": "validation",
    "test": "testing",
}
TEST_TABLE = "test_episodes.json"
"""The table of a run's test episodes among its MLflow artifacts."""
SECONDS_BETWEEN_WRITES = 30.0
"""Iterations that are shorter than this are written together. What a killed run has not written, it writes when it is
started again."""
Arguments = ParamSpec("Arguments")
_recording = threading.RLock()


def tracking_uri(experiment: Experiment) -> str:
    """The configured tracking URI, or a SQLite file in the project's home. The path of a file is absolute."""
    uri = experiment.tracking.uri
    path = sqlite_file(uri)
    if path is None or path.is_absolute() or "?" in uri:
        return uri or sqlite_address(home() / "mlflow.db")
    return sqlite_address(start_folder() / path, uri.partition(":")[0])


def recording_store(experiment: Experiment) -> str:
    """The tracking URI, where runs can be recorded now; runs that killed processes have left open are closed in it.

    Raises ConfigurationError where no run can be recorded there.
    """
    uri = tracking_uri(experiment)
    require_store(uri)
    close_abandoned(uri)
    return uri


def use_project_storage() -> None:
    """Use the store that the project's parameters name, in what is about recorded runs and no experiment of its own.

    Raises ConfigurationError where these contradict themselves.
    """
    try:
        parameters = project_root() / "params.yaml"
    except ConfigurationError:  # outside of a project: a home by itself
        return
    if parameters.is_file():
        storage = load(parameters, to_plan=True).storage
        use_storage(storage.url, storage.cache_gigabytes)


def recorded_store(tracking: str | None) -> str:
    """The tracking URI that is read of recorded runs: the one that is named, or the project's; closed as above.

    From here on this process uses the store that the project's parameters name, too. Raises ConfigurationError where no
    server listens.
    """
    use_project_storage()
    uri = tracking or tracking_uri(load(project_root() / "params.yaml", to_plan=True))
    require_server(uri)
    close_abandoned(uri)
    return uri


def recorded_here(tracking_uri: str, wanted: str = "") -> list[RecordedRun]:
    """The runs that `wanted` names (`find_runs`), of which this project's store holds what they made.

    Raises ConfigurationError for one that another home has recorded in the same database, and that is not held here.
    """
    runs = find_runs(tracking_uri, wanted)
    for run in runs:
        whose = run.tags.get(HOME, str(home()))
        if whose != str(home()) and not default_store().holds(run.artifacts.start):
            raise ConfigurationError(
                f"what a run has made must be in this project's store to be looked into; {run.ablation}/{run.name} was "
                f"recorded from {whose}, and {home()} does not hold it: give the command in that project, name a run "
                "of this one, or have both share a store (storage.url)",
                "TW-other-store",
            )
    return runs


def describe(experiment: Experiment, prepared: Prepared, code: str) -> AblationDescription:
    """What is recorded of an ablation before any of its runs; `code` is the fingerprint of the code that computes."""
    values = experiment.model_dump(mode="json", exclude={*BESIDE_RESULTS})
    references = {name: str(reference) for name, reference in vars(prepared).items()}
    world = world_ingredients(experiment.world)
    model, diff = pretrained(experiment.policy), run_environment.uncommitted_diff()
    return AblationDescription(
        name=experiment.ablation.name,
        identity=digest_of([values, references, world, code, run_environment.platform()]),
        parameters=values,
        variants=[experiment.variant(name).model_dump(mode="json") for name in experiment.ablation.variants],
        tags={
            **run_environment.code_state(),
            **{f"{split}_task_set": prepared.task_set(split).digest for split in SPLITS},
            "demonstrations": prepared.demonstrations.digest,
            "warm_start": prepared.warm_start.digest,
            "world_version": world_class(experiment.world.name).version,
            **({"pretrained": model.content} if model else {}),
            **({"suggested": json.dumps(dict(experiment.suggested))} if experiment.suggested else {}),
        },
        datasets=[recorded_task_set(experiment, prepared, split) for split in SPLITS],
        diff=recordable(diff, experiment.tracking.new_files) if diff else "",
    )


def recorded_task_set(experiment: Experiment, prepared: Prepared, split: Split) -> Dataset:
    """The task set of a split, as MLflow records it as an input of runs."""
    folder = default_store().folder(prepared.task_set(split))
    tasks, source = read_task_set(folder, split), str(task_set_file(folder, split))
    return Dataset(f"{experiment.world.name}-{split}", task_set_digest(tasks), CONTEXTS[split], source, len(tasks))


def _alone(method: Callable[Arguments, None]) -> Callable[Arguments, None]:
    """Keep threads out of a method of a record while another one is in one: runs are recorded as workers report."""

    @functools.wraps(method)
    def wrapper(*args: Arguments.args, **kwargs: Arguments.kwargs) -> None:
        with _recording:
            method(*args, **kwargs)

    return wrapper


class AblationRecord:
    """The MLflow record of an ablation, to which its runs are added as they go, by any thread."""

    def __init__(
        self,
        experiment: Experiment,
        prepared: Prepared,
        code: str,
        trajectories_of: Callable[[Reference], Sequence[Trajectory]],
    ) -> None:
        """`code` is the fingerprint of the code that computes; `trajectories_of` reads a rollout."""
        self._experiment, self._prepared, self.code = experiment, prepared, code
        self._trajectories_of = trajectories_of
        uri = tracking_uri(experiment)
        local = None if has_own_artifacts(uri) else home() / "mlflow"
        recorder = Recorder(uri, experiment.tracking.experiment, local)
        self.tracked = TrackedAblation(recorder, describe(experiment, prepared, self.code))
        self._configured: dict[str, Experiment] = {}
        self._runs: dict[str, Run] = {}
        self._unwritten: defaultdict[str, list[IterationMetrics]] = defaultdict(list)
        self._last_write = -SECONDS_BETWEEN_WRITES

    @contextmanager
    def open_runs(self) -> Iterator[None]:
        """A block after whose failure no run of the record is RUNNING: the ablation has failed, or all were killed."""
        try:
            yield
        except TrackingUnreachable:
            raise
        except BaseException as error:
            with _recording:
                for child in self.tracked.children.values():
                    child.kill()
                if isinstance(error, Exception):
                    self.tracked.parent.fail(repr(error))
                else:
                    self.tracked.parent.kill()
            raise

    @_alone
    def open(self, run_name: str, variant: str, seed: int, experiment: Experiment) -> None:
        """Find or create the child run of one variant and seed."""
        self._configured[run_name] = experiment
        self.tracked.open(run_name, variant, seed, _own_parameters(experiment))

    @_alone
    def start(self, run: Run) -> None:
        """Record why reinforcement has nothing to begin with, if it has nothing: see `flows.health.judge_start`."""
        self._runs[run.name] = run
        if run.start_warning:
            self.tracked.children[run.name].tag(START_WARNING, run.start_warning)

    @_alone
    def iteration(self, run: Run, iteration: Iteration) -> None:
        """Record one iteration's metrics; after an evaluation also a few trajectories, and all artifacts so far.

        Metrics are written after an evaluation, and otherwise at most every `SECONDS_BETWEEN_WRITES`.
        """
        child = self.tracked.children[run.name]
        if child.finished:
            return
        unwritten = self._unwritten[run.name]
        if iteration.number == 1:
            unwritten.append(IterationMetrics(0, evaluation_metrics("validation", run.start, run.start_at_horizon)))
        unwritten.append(IterationMetrics(iteration.number, metrics_of(iteration)))
        evaluated = iteration.evaluation is not None
        if evaluated or time.monotonic() - self._last_write >= SECONDS_BETWEEN_WRITES:
            self._write(run.name)
        if evaluated:
            self._trace_batch(child, run, iteration)
            if not child.finished:  # else another process has recorded all of them
                self._name_artifacts(child, run)

    @_alone
    def finish(self, run: Run) -> None:
        """Finish a child run: record the digest of its policy, and of its test, if it had one, metrics and episodes.

        Of a run that a guard or an alarm has ended, also when and by what.
        """
        self._write(run.name)
        child = self.tracked.children[run.name]
        if run.test is not None:
            self._record_test(child, run, run.test)
        if not child.finished or child.result == run.policy.digest:
            self._name_artifacts(child, run)
        if run.ended is not None:
            child.mark_ended(run.ended)
        child.finish(run.policy.digest)

    def _record_test(self, child: TrackedRun, run: Run, test: Reference) -> None:
        """Record the tested policy as a logged model, with its metrics and a few test episodes."""
        policy = child.log_policy(
            run.policy,
            len(run.iterations),
            {"variant": run.variant, "seed": str(run.seed), "world": run.experiment.world.name},
            recorded_task_set(run.experiment, self._prepared, "test"),
        )
        child.log_summary(evaluation_metrics("test", test, run.test_at_horizon), policy)
        episodes = {mode: read_evaluation(test, mode) for mode in (SAMPLED, GREEDY)}
        traced = episodes[SAMPLED][: self._experiment.tracking.traces]
        weights = reward_weights(run.experiment)
        child.log_trajectories("test", traced, weights=weights, policy=policy)
        child.log_table(episode_columns(episodes, list(weights)), TEST_TABLE)

    def whole(self, run: Run) -> None:
        """Record a run that has ended before; what is recorded of it already stays."""
        self.open(run.name, run.variant, run.seed, self._experiment.variant(run.variant))
        self.start(run)
        for iteration in run.iterations:
            self.iteration(run, iteration)
        self.finish(run)

    @_alone
    def fail(self, run_name: str, reason: str) -> None:
        """Mark the child run as failed."""
        if run_name in self.tracked.children:
            self._write(run_name)
            self.tracked.children[run_name].fail(reason)

    @_alone
    def leave_out(self, run_name: str, fault: TrainingEnded) -> None:
        """Mark the child run as failed by a fault, and left out of the report; what it has made so far is recorded."""
        if run_name in self.tracked.children:
            self._write(run_name)
            if run_name in self._runs:
                self._name_artifacts(self.tracked.children[run_name], self._runs[run_name])
            self.tracked.children[run_name].leave_out(fault.fault, str(fault))

    def _write(self, run_name: str) -> None:
        """Write the metrics of the run's iterations that wait to be written."""
        if waiting := self._unwritten.pop(run_name, None):
            self.tracked.children[run_name].log_iterations(waiting)
            self._last_write = time.monotonic()

    def _name_artifacts(self, child: TrackedRun, run: Run) -> None:
        """Record the references of all artifacts that the run has read and made so far.

        The recorded parameters are the initial ones: what an alarm has changed since follows from them.
        """
        artifacts = RunArtifacts(
            variant=run.variant,
            seed=run.seed,
            experiment=_own_parameters(self._configured[run.name]),
            prepared=dict(vars(self._prepared)),
            start=run.start,
            start_at_horizon=run.start_at_horizon,
            iterations=[iteration.artifacts for iteration in run.iterations],
            ended=run.ended,
            test=run.test,
            test_at_horizon=run.test_at_horizon,
        )
        child.log_text(artifacts.model_dump_json(indent=1), ARTIFACTS_FILE)

    def _trace_batch(self, child: TrackedRun, run: Run, iteration: Iteration) -> None:
        """Record trajectories of the batch that this iteration learned from, with their advantages."""
        trajectories = self._trajectories_of(iteration.rollout)
        advantages = {index: credit.turns for index, credit in read_credit(iteration.credit).items()}
        indices = list(advantages)[: self._experiment.tracking.traces]
        child.log_trajectories(
            f"batch/{iteration.number:04d}",
            [trajectories[index] for index in indices],
            [advantages[index] for index in indices],
            reward_weights(run.experiment),
        )


def reward_weights(own: Experiment) -> dict[str, float]:
    """The weight of each reward that counts in a variant."""
    return {name: reward.weight for name, reward in own.rewards.items()}


def episode_columns(
    episodes: Mapping[str, Sequence[Trajectory]], rewards: Sequence[str]
) -> dict[str, list[str | int | float | bool]]:
    """A row for each episode, by column: its task, how replies were chosen, what came of it, and its raw rewards."""
    rows = [(mode, each) for mode, trajectories in episodes.items() for each in trajectories]
    return {
        "task": [each.task.id for _, each in rows],
        "replies": [mode for mode, _ in rows],
        "sample": [each.replica for _, each in rows],
        "success": [each.success for _, each in rows],
        "ending": [each.ending.value for _, each in rows],
        **{f"reward/{name}": [each.total(name) for _, each in rows] for name in rewards},
        **{name: [int(episode_value(each, name)) for _, each in rows] for name in ("turns", "reply_tokens")},
    }


def _own_parameters(experiment: Experiment) -> dict[str, object]:
    """A variant's parameters, without those that no result depends on and those of the whole ablation."""
    return experiment.model_dump(mode="json", exclude={*BESIDE_RESULTS, "ablation", "variants"})
