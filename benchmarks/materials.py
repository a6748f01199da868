"""What a benchmark of one stage begins with: the stages of preparation, called by themselves, without Prefect."""

from __future__ import annotations

from dataclasses import dataclass

from tasks.prepare.materials import (
    DemonstrationParameters,
    PolicyParameters,
    TokenizerParameters,
    demonstrations,
    initial_policy,
    task_set,
    tokenizer,
)
from turnwise.experiment import Experiment
from turnwise.store import Reference
from turnwise.training_runs.state import play_parameters, task_set_parameters


@dataclass(frozen=True)
class Materials:
    """References to artifacts in the home that the environment names."""

    tasks: Reference
    """The train task set."""
    demonstrations: Reference
    tokenizer: Reference
    policy: Reference
    """A policy from scratch, untrained."""


def materials(experiment: Experiment) -> Materials:
    """Make the materials of an experiment whose policy begins from scratch."""
    data, policy = experiment.data, experiment.policy
    tasks = task_set.fn(task_set_parameters(experiment, "train"))
    demonstration_set = demonstrations.fn(
        DemonstrationParameters(
            **dict(play_parameters(experiment)),
            seed=data.seed,
            count=data.demonstrations,
            noise=data.demonstration_noise,
        ),
        task_set=tasks,
    )
    words = tokenizer.fn(
        TokenizerParameters(pretrained=None, vocabulary=policy.vocabulary, format=experiment.agent.format),
        demonstrations=demonstration_set,
    )
    initial = initial_policy.fn(PolicyParameters.of(policy, None, experiment.agent.context_tokens), tokenizer=words)
    return Materials(tasks, demonstration_set, words, initial)
