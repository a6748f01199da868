"""The plan: which stages a flow calls, with their cache keys as far as they are known, and which are recorded.

A plan is computed by going the way of the flow (`flows.prepare`, `flows.train`) with what is recorded in place of what
would be computed. Where a result is not recorded, the keys of what reads it are not known before it is. A run whose
bookkeeping is not recorded goes on as its configuration says: with the turn limit of its beginning, no alarm, and no
further rounds of sampling. Nothing is computed, logged or pruned.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from rich.console import Console

from flows.prepare import evaluate_baselines, evaluate_warm_start, materials, prepare_policy
from flows.report import report_runs
from flows.train import begin, iterate, play_test_tasks, return_to_healthy
from tasks.calls import Call, Unrecorded
from turnwise.data.outcomes import run_name
from turnwise.errors import TurnwiseError
from turnwise.experiment import Experiment
from turnwise.store import Reference
from turnwise.store.default import nothing_is_stored
from turnwise.training_runs.display import Display
from turnwise.training_runs.observing import StageCall
from turnwise.training_runs.seeds import RunName, every_run, next_runs
from turnwise.training_runs.state import AblationOutcome, Prepared, Run
from turnwise.training_runs.work_left import kind_of, model_seconds
from turnwise.world import Split


@dataclass(frozen=True)
class PlannedStage:
    """One call of a stage."""

    stage: str
    label: str
    run: str
    """The run that it is a part of; empty for what all runs share."""
    iteration: int
    """Of the run, from 1; 0 for what is before or after its iterations."""
    key: str | None
    """Its cache key; None where that is not known before what it reads is recorded."""
    recorded: Reference | None
    """The result that is recorded, if there is one."""
    call: Call
    """The call itself, not made."""

    @property
    def kind(self) -> str:
        """Its kind, by which its seconds are estimated."""
        return kind_of(self.stage, self.label)

    def as_call(self) -> StageCall:
        """The call that finds the recorded result."""
        assert self.recorded is not None and self.key is not None, "it is recorded"
        return StageCall(self.stage, self.label, self.recorded, True, 0.0, self.key)


@dataclass(frozen=True)
class Plan:
    """The stages of a flow in the order of their calls, and its runs as far as they are recorded."""

    experiment: Experiment
    stages: tuple[PlannedStage, ...]
    runs: tuple[Run, ...] = ()
    outcome: AblationOutcome | None = None
    """Of an ablation: its artifacts, `Unrecorded` where they are not recorded."""

    @property
    def is_recorded(self) -> bool:
        """Whether the result of every stage is recorded."""
        return all(each.recorded is not None for each in self.stages)

    @property
    def kinds(self) -> Counter[str]:
        """How many stages there are, by their kind."""
        return Counter(each.kind for each in self.stages)

    @property
    def recorded(self) -> Counter[str]:
        """How many of them are recorded, by their kind."""
        return Counter(each.kind for each in self.stages if each.recorded is not None)

    def display(
        self,
        console: Console,
        processes: int = 1,
        reached: Callable[[float], None] = lambda share: None,
        log: Callable[[str], None] = lambda line: None,
    ) -> Display:
        """A display of the progress: see `Display`."""
        return Display(console, self.kinds, processes, reached, log, model_seconds(self.experiment), self.recorded)

    def kinds_of(self, runs: Sequence[RunName]) -> Counter[str]:
        """How many stages these runs have, by their kind."""
        names = {run_name(*each) for each in runs}
        return Counter(each.kind for each in self.stages if each.run in names)


def plan_preparation(experiment: Experiment, *, evaluated: Split | None = None) -> Plan:
    """What every run starts from; and `evaluated` on a task set, on that of the test next to the baseline policies."""
    way = _Way()
    prepared = prepare_policy(experiment, materials(experiment, way.take), way.take)
    if evaluated == "test":
        evaluate_baselines(experiment, prepared, way.take)
    if evaluated is not None:
        evaluate_warm_start(experiment, prepared, way.take, evaluated)
    return Plan(experiment, tuple(way.stages))


def plan_run(experiment: Experiment, variant: str, seed: int) -> Plan:
    """The preparation, and one run of an ablation, without the report."""
    way = _Way()
    prepared = prepare_policy(experiment, materials(experiment, way.take), way.take)
    run = way.train(experiment.variant(variant), prepared, variant, seed)
    return Plan(experiment, tuple(way.stages), (run,))


def plan_ablation(experiment: Experiment, *, looks: bool = True) -> Plan:
    """All of an ablation: the preparation, the reference points, every run, and the report.

    Without `looks` nothing is looked up, and no key is known.
    """
    way = _Way(looks)
    prepared = prepare_policy(experiment, materials(experiment, way.take), way.take)
    baselines = evaluate_baselines(experiment, prepared, way.take)
    warm_start = evaluate_warm_start(experiment, prepared, way.take)
    runs = way.train_all(experiment, prepared, warm_start)
    report = way.take(report_runs(experiment, baselines, warm_start, prepared.tokenizer, runs, []))
    outcome = AblationOutcome(prepared, baselines, warm_start, runs, [], report)
    return Plan(experiment, tuple(way.stages), tuple(runs), outcome)


def plan_runs(experiment: Experiment, *, tested: bool = True) -> Plan:
    """The preparation, and every run of an ablation, as in a sweep. Without `tested` no test task is played."""
    way = _Way()
    prepared = prepare_policy(experiment, materials(experiment, way.take), way.take)
    runs = [way.train(experiment.variant(name), prepared, name, seed, tested) for name, seed in every_run(experiment)]
    return Plan(experiment, tuple(way.stages), tuple(runs))


def stages_of_run(own: Experiment, variant: str, seed: int) -> Sequence[PlannedStage]:
    """All that one run may compute, whatever is recorded; `own` is the variant's own configuration."""
    way = _Way(looks=False)
    prepared = prepare_policy(own, materials(own, way.take), way.take)
    way.stages.clear()
    way.train(own, prepared, variant, seed)
    return way.stages


def stages_not_called(run: Run) -> Counter[str]:
    """By kind, the stages that a run was expected to call and will not, since it was ended early."""
    if run.ended is None:
        return Counter()
    optimization = run.experiment.optimization.model_copy(update={"iterations": run.ended.iteration})
    shorter = run.experiment.model_copy(update={"optimization": optimization})
    planned, actual = (
        Counter(each.kind for each in stages_of_run(own, run.variant, run.seed)) for own in (run.experiment, shorter)
    )
    return planned - actual


class _Way:
    """Goes the way of a flow: takes its calls as stages of a plan."""

    def __init__(self, looks: bool = True) -> None:
        self.stages: list[PlannedStage] = []
        self._looks = looks and not nothing_is_stored()
        self._run, self._iteration = "", 0

    def take(self, call: Call) -> Reference:
        """Add a call to the plan; the result that is recorded, or what stands for it."""
        key, result = None, None
        if self._looks:
            # What the stage reads may not be to be had here: then it is not recorded either.
            with suppress(TurnwiseError, OSError):
                key, result = call.key, call.recorded()
        self.stages.append(PlannedStage(call.stage, call.label, self._run, self._iteration, key, result, call))
        return result or call.unrecorded

    def train_all(self, experiment: Experiment, prepared: Prepared, warm_start: Reference) -> list[Run]:
        """All runs that are needed; where their results are not recorded, what is decided is not known, so at most."""
        runs: dict[RunName, Run] = {}
        while names := next_runs(experiment, warm_start, runs):
            runs |= {each: self._train(experiment, prepared, each) for each in names}
            if any(isinstance(each, Unrecorded) for each in [warm_start, *(runs[name].test for name in names)]):
                variants = {variant for variant, _ in names}
                remaining = [each for each in every_run(experiment) if each[0] in variants and each not in runs]
                runs |= {each: self._train(experiment, prepared, each) for each in remaining}
                break
        return list(runs.values())

    def _train(self, experiment: Experiment, prepared: Prepared, name: RunName) -> Run:
        return self.train(experiment.variant(name[0]), prepared, *name)

    def train(self, own: Experiment, prepared: Prepared, variant: str, seed: int, tested: bool = True) -> Run:
        """One variant with one seed, as `flows.train.train`."""
        looks, self._run = self._looks, run_name(variant, seed)
        run = begin(own, prepared, variant, seed, self.take)
        for self._iteration in range(1, own.optimization.iterations + 1):
            iterate(run, self._iteration, self.take)
            return_to_healthy(run, self.take)
            # What the next iteration is like, its turn limit and its learning rate, is in this one's bookkeeping.
            self._looks = self._looks and not isinstance(run.iterations[-1].health, Unrecorded)
            if run.ended is not None:
                break
        self._iteration = 0
        if tested:
            play_test_tasks(run, self.take)
        self._looks, self._run = looks, ""
        return run
