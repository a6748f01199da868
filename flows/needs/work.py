"""Upper bounds on the work of an ablation: episodes, tokens, optimizer steps and stages, before any of it is done."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from flows.plan import stages_of_run
from turnwise.config.agent import Agent
from turnwise.experiment import Experiment


@dataclass(frozen=True)
class PlannedRun:
    """Upper bounds on what one variant computes with one seed."""

    variant: str
    estimator: str
    episodes: int
    """Number of training episodes."""
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
    acting = own.made_world.limits.turns * (own.agent.mode.attempts or 1)
    lengths = _longest_replies(own.agent)
    optimization, evaluation = own.optimization, own.evaluation
    episodes = optimization.iterations * own.rollout.prompts * own.rollout.group_size
    if own.rollout.scheme == "branching":  # one group from each state, for each reply of the group
        episodes *= acting * len(lengths)
    stages = stages_of_run(own, variant, own.ablation.seeds[0])
    evaluated = {each.iteration for each in stages if each.kind == "evaluate"}  # 0 is what the run starts from
    tasks = len(evaluated) * own.data.validation_tasks + own.data.test_tasks
    return PlannedRun(
        variant,
        own.credit.estimator,
        episodes,
        episodes * acting * sum(lengths),
        optimization.iterations * optimization.epochs * optimization.mini_batches,
        tasks * (1 + evaluation.samples),
        own.has_critic,
        Counter(each.stage for each in stages if each.iteration),
        len(evaluated) - 1,
        len(stages),
    )


def _longest_replies(agent: Agent) -> list[int]:
    """Most tokens of an acting reply, and of a thought and a summary, of which at most one each goes with it."""
    beside = [length for length in (agent.mode.tokens, agent.context.summary_tokens) if length is not None]
    return [agent.maximum_reply_tokens, *beside]
