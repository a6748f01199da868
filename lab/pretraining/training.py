"""The training of a base policy, in stages of some steps each, and its files: weights in bfloat16, the tokenizer.

A run that is killed goes on from the last stage.
"""

from __future__ import annotations

import shutil

import numpy as np

from lab.pretraining.configuration import PretrainingSteps
from lab.pretraining.corpus import read_corpus
from tasks.caching import depends_on
from tasks.orchestration.deferred import task
from tasks.restoring import MODELS
from turnwise import progress, seeding
from turnwise.config.model_settings import Compute, LearnerParameters
from turnwise.config.schema import Section
from turnwise.data.arrays import SequenceBatch, joined
from turnwise.policy.learner.schedule import warmed_up_and_falling
from turnwise.policy.model_files import MODEL_FILES
from turnwise.store import MANIFEST, Reference, default_store


class PretrainingParameters(Section):
    """The parameters of some steps of a base policy's training."""

    seed: int
    compute: Compute
    training: PretrainingSteps
    learning_rate: float
    weights: dict[str, float]
    """How often a sequence is drawn from each source of the corpus, relative to the others."""
    first_step: int
    """1 for the first stage."""


@task(name="pretraining", task_run_name="{label}: pretraining", retries=1)
@depends_on()
def pretraining(
    parameters: PretrainingParameters, *, policy: Reference, corpus: Reference, label: str = "pretraining"
) -> Reference:
    """Train all weights for `training.steps_per_stage` steps from `first_step` on; saves the policy and its optimizer.

    Each sequence of a batch is drawn from a source of the step's phase by the weights, and within the source with equal
    probability.
    Metric `loss`: the mean over these steps, in nats per trained token.
    """
    section, sources = parameters.training, read_corpus(corpus)
    loading = LearnerParameters(compute=parameters.compute)
    learner = MODELS.take_learner(policy, loading)
    last = min(parameters.first_step + section.steps_per_stage - 1, section.steps)
    losses = []
    for step in range(parameters.first_step, last + 1):
        metrics = learner.supervised_step(
            _drawn(sources, parameters, step),
            learning_rate=warmed_up_and_falling(step, section.steps, parameters.learning_rate, section),
            micro_batch_tokens=section.micro_batch_tokens,
            weight_decay=section.weight_decay,
        )
        losses.append(metrics["loss"])
        progress.report("pretraining", step, section.steps, loss=metrics["loss"])
    with default_store().write("policy") as draft:
        learner.save(draft.folder)
        draft.metrics["loss"] = float(np.mean(losses))
        draft.metrics["steps"] = last
    MODELS.keep_learner(draft.reference, loading, learner)
    return draft.reference


def _drawn(sources: dict[str, SequenceBatch], parameters: PretrainingParameters, step: int) -> SequenceBatch:
    draw = seeding.generator(parameters.seed, "pretraining", step)
    phase = parameters.training.phase_of(step)
    names = sorted(parameters.weights if phase.sources is None else phase.sources)
    weights = np.array([parameters.weights[name] for name in names])
    counts = np.bincount(draw.choice(len(names), size=phase.batch, p=weights / weights.sum()), minlength=len(names))
    return joined(
        sources[name].select(draw.integers(len(sources[name]), size=count))
        for name, count in zip(names, counts, strict=True)
        if count
    )


class PublicationParameters(Section):
    """A published base policy has no parameters: it is what its inputs are."""


@task(name="base_policy", task_run_name="{label}: base_policy", retries=1)
@depends_on()
def base_policy(
    parameters: PublicationParameters, *, policy: Reference, tokenizer: Reference, label: str = "base_policy"
) -> Reference:
    """The policy with its weights rounded to bfloat16, half the size, and its tokenizer, in one folder.

    What was trained in float32 is evaluated as published, after rounding.
    """
    from turnwise.policy.publication import publish_weights

    with default_store().write("policy") as draft:
        publish_weights(default_store().folder(policy, MODEL_FILES), draft.folder)
        shutil.copytree(
            default_store().folder(tokenizer), draft.folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns(MANIFEST)
        )
    return draft.reference
