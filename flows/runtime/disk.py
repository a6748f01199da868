"""Upper bounds on the work of an ablation, on what it spends and on the disk that it needs, before any of it is done.

Disk, for n weights of which t are trained: each policy takes 4 n bytes of weights and 8 t of moments in float32,
counted for the policies for which the section `storage` keeps them, plus one full copy while the next is written; with
an adapter 4 t in place of 4 n, since it is kept alone; a critic with its own trunk takes 12 n.
Episodes take 12 bytes per token that may be sampled and 2 per token of a full context, measured on the demo's Parquet
files. Records in Prefect and MLflow take 60 kB per stage, also measured there.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from flows.plan import stages_of_run
from turnwise.config.agent import Agent
from turnwise.credit.selection import MAXIMUM_ROUNDS
from turnwise.errors import ConfigurationError
from turnwise.experiment import Experiment
from turnwise.policy.dimensions import dimensions_of
from turnwise.policy.sizes import Shapes, count, moment_bytes, trained
from turnwise.project import home
from turnwise.reporting.formatting import readable_bytes
from turnwise.store.files import sizes_below
from turnwise.training_runs.observing import Observer
from turnwise.training_runs.work_left import TEST

BYTES_PER_SAMPLED_TOKEN, BYTES_PER_CONTEXT_TOKEN = 12, 2
BYTES_PER_STAGE = 60_000
STAGES_OF_A_ROUND = 3
"""Sampling, concatenation and selection."""


@dataclass(frozen=True)
class Needs:
    """What an ablation needs of the disk, in bytes."""

    policies: int
    """Weights, optimizer states and critics that are kept."""
    next_policy: int
    """One policy per process, while it is written."""
    episodes: int
    records: int

    @property
    def disk(self) -> int:
        """The disk needs in total."""
        return self.policies + self.next_policy + self.episodes + self.records


def needs_of(experiment: Experiment, processes: int = 1) -> Needs | None:
    """Upper bounds on the ablation's disk; None if its policy's size is not known yet."""
    dimensions = dimensions_of(experiment.policy)
    if dimensions is None:
        return None
    shapes, seeds = dimensions.shapes, len(experiment.ablation.all_seeds)
    runs = [(planned_run(experiment, name), experiment.variant(name)) for name in experiment.ablation.variants]
    counts = [(_stored_episodes(own, run), run.reply_tokens // run.episodes) for run, own in runs]
    tokens = seeds * sum(episodes * reply_tokens for episodes, reply_tokens in counts)
    return Needs(
        policies=8 * count(shapes) + sum(seeds * _retained_bytes(own, run, shapes) for run, own in runs),
        next_policy=processes * max(sum(_iteration_bytes(own, shapes)) for _, own in runs),
        episodes=tokens * BYTES_PER_SAMPLED_TOKEN
        + seeds * sum(episodes for episodes, _ in counts) * experiment.agent.context_tokens * BYTES_PER_CONTEXT_TOKEN,
        records=BYTES_PER_STAGE * seeds * sum(run.calls for run, _ in runs),
    )


def _stored_episodes(own: Experiment, run: PlannedRun) -> int:
    greedy = run.episodes // own.rollout.group_size if own.plays_greedily else 0
    return run.episodes + greedy + run.evaluated


def _iteration_bytes(own: Experiment, shapes: Shapes) -> tuple[int, int]:
    """Bytes of a policy's weights or adapter, and of the other state that training resumes from (optimizer, critic)."""
    trained_parameters = trained(shapes, own.optimization.adapter)
    state = moment_bytes(trained_parameters, own.compute.moments)
    if own.has_critic and not own.critic_on_trunk:
        state += 4 * count(shapes) + moment_bytes(count(shapes), own.compute.moments)
    return 4 * trained_parameters, state


def _retained_bytes(own: Experiment, run: PlannedRun, shapes: Shapes) -> int:
    """Bytes of the policies and critics that are kept of one run."""
    storage, iterations = own.storage, own.optimization.iterations
    weights, state = _iteration_bytes(own, shapes)
    evaluated = run.evaluations if storage.keep_evaluated else storage.keep_best
    last = iterations if storage.keep_last is None else storage.keep_last + own.rollout.lag
    whole = iterations if storage.keep_optimizer is None else storage.keep_optimizer
    whole += own.alarms.response == "return"
    return min(iterations, last + evaluated) * weights + min(iterations, whole) * (weights + state)


def free_disk() -> int:
    """Free bytes on the disk of the home, which need not exist yet."""
    return shutil.disk_usage(next(place for place in (home(), *home().parents) if place.exists())).free


class DiskGuard(Observer):
    """Stops an ablation before its first stage is computed if the disk has too little room for all of it.

    Files already in the home may belong to this ablation, and are counted as if they did.
    """

    def __init__(self, needed: int) -> None:
        self._needed = needed
        self._checked = False

    def started(self, stage: str, label: str) -> None:
        """Check the disk before the first stage that is computed.

        Raises:
            ConfigurationError: the disk has too little room.
        """
        if self._checked:
            return
        self._checked = True
        free = free_disk()
        if free >= self._needed:
            return
        lacking = self._needed - sum(size for _, size in sizes_below(home()))
        if free < lacking:
            raise ConfigurationError(
                f"the disk of {home()} must have room for what this ablation makes, {readable_bytes(lacking)} at most; "
                f"{readable_bytes(free)} are free: make room (turnwise prune), keep less (the section storage), or set "
                "TURNWISE_HOME to a folder on another disk",
                "TW-small-disk",
            )


def disk_guard(experiment: Experiment, processes: int = 1) -> DiskGuard:
    """The guard of an ablation's needs; it asks for no room where they are not known."""
    needed = needs_of(experiment, processes)
    return DiskGuard(needed.disk if needed else 0)


@dataclass(frozen=True)
class PlannedRun:
    """Upper bounds on what one variant computes with one seed."""

    variant: str
    estimator: str
    episodes: int
    """Number of training episodes."""
    turns: int
    """Most acting turns in the training episodes."""
    reply_tokens: int
    """Most reply tokens in the training episodes."""
    optimizer_steps: int
    evaluated: int
    """Number of episodes on the validation and the test task set."""
    critic: bool
    stages: Mapping[str, int]
    """How often each stage of an iteration runs, by the name of its task."""
    evaluations: int
    """How many of its iterations evaluate the policy."""
    calls: int
    """Number of all its stages."""


def planned_run(experiment: Experiment, variant: str) -> PlannedRun:
    """Upper bounds on what a variant computes with one seed."""
    own = experiment.variant(variant)
    turns = own.made_world.limits.turns * (own.agent.mode.attempts or 1)
    lengths = _longest_replies(own.agent)
    optimization, evaluation = own.optimization, own.evaluation
    rounds = _most_rounds(own)
    episodes = optimization.iterations * rounds * own.rollout.prompts * own.rollout.group_size
    if own.rollout.scheme == "branching":  # one group from each state, for each reply of the group
        episodes *= turns * len(lengths)
    stages = stages_of_run(own, variant, own.ablation.all_seeds[0])
    kinds = Counter(each.kind for each in stages)
    evaluated = {each.iteration for each in stages if each.kind == "evaluate"}  # 0 is what the run starts from
    tasks = kinds["evaluate"] * own.data.validation_tasks + kinds[TEST] * own.data.test_tasks
    evolves = optimization.method == "evolution"
    steps = own.evolution.steps if evolves else optimization.epochs * optimization.mini_batches
    return PlannedRun(
        variant,
        own.credit.estimator,
        episodes,
        episodes * turns,
        episodes * turns * sum(lengths),
        optimization.iterations * steps,
        tasks * (1 + evaluation.samples),
        own.has_critic,
        Counter(each.stage for each in stages if each.iteration),
        len(evaluated) - 1,
        len(stages) + optimization.iterations * (rounds - 1) * STAGES_OF_A_ROUND,
    )


def _most_rounds(own: Experiment) -> int:
    """Most rounds of sampling of an iteration."""
    selection = own.selection
    return int(selection.options.get("maximum_rounds", MAXIMUM_ROUNDS)) if selection.rule == "mixed" else 1


def require_budget(experiment: Experiment, runs: Sequence[PlannedRun] | None = None) -> None:
    """Refuse `ablation.budget` where a variant cannot spend as much by its last evaluation, even at most.

    `runs` are those of the variants where they are known. Raises ConfigurationError.
    """
    budget = experiment.ablation.budget
    if budget is None:
        return
    for run in runs or [planned_run(experiment, name) for name in experiment.ablation.variants]:
        own = experiment.variant(run.variant)
        last, evolves = own.optimization.iterations, own.optimization.method == "evolution"
        most = {
            "iterations": last,
            "sampled_tokens": run.reply_tokens,
            "trained_tokens": None if evolves else run.reply_tokens // _most_rounds(own),
            "environment_steps": run.turns,
            "optimizer_steps": run.optimizer_steps,
        }.get(budget.axis)
        if most is not None and most < budget.amount:
            raise ConfigurationError(
                f"ablation.budget must be within what every run can spend; {run.variant} makes at most {most:,} "
                f"{budget.axis.replace('_', ' ')} in {last} {'iteration' if last == 1 else 'iterations'}; found "
                f"{budget.heading}: lower it, or raise optimization.iterations",
                "TW-large-budget",
            )


def _longest_replies(agent: Agent) -> list[int]:
    """Most tokens of an acting reply, and of a thought and a summary, of which at most one each goes with it."""
    thought_and_summary = [length for length in (agent.mode.tokens, agent.context.summary_tokens) if length is not None]
    return [agent.maximum_reply_tokens, *thought_and_summary]
