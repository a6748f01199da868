"""Update: one batch of credited trajectories changes the policy."""

from __future__ import annotations

import logging
import shutil
import time

from tasks.credit import read_advantages
from tasks.learning import keep_learner, take_learner
from tasks.stage import stage
from turnwise import seeding
from turnwise.artifacts import MANIFEST, Reference, default_store
from turnwise.policy.learner import UpdateBatch, UpdateSettings
from turnwise.sections import Compute, Optimization, Section
from turnwise.trajectory import read_trajectories

logger = logging.getLogger(__name__)


class UpdateParameters(Section):
    """What an update reads."""

    compute: Compute
    learning_rate: float
    clip_low: float
    clip_high: float
    mini_batches: int
    epochs: int
    weight_decay: float
    maximum_gradient_norm: float
    micro_batch_tokens: int
    maximum_mismatch: float
    temperature: float
    seed: int
    iteration: int

    @classmethod
    def of(
        cls, optimization: Optimization, compute: Compute, temperature: float, seed: int, iteration: int
    ) -> UpdateParameters:
        """The keys of the optimization section that an update reads: all but the number of iterations."""
        read = {name: getattr(optimization, name) for name in Optimization.model_fields if name != "iterations"}
        return cls(compute=compute, temperature=temperature, seed=seed, iteration=iteration, **read)


@stage("update")
def update(parameters: UpdateParameters, *, policy: Reference, rollout: Reference, credit: Reference) -> Reference:
    """The next policy, with its optimizer's state.

    A batch in which no advantage differs from 0 has nothing to say: it is reported and skipped, and the policy stays.
    """
    advantages = read_advantages(credit)
    if not any(value for turns in advantages.values() for value in turns):
        logger.warning("iteration %d: no group has any spread of reward; the batch is skipped", parameters.iteration)
        return _same_policy(policy)
    began = time.perf_counter()
    trajectories = read_trajectories(default_store().folder(rollout))
    sequences = [trajectories[index].flatten() for index in advantages]
    learner = take_learner(policy, parameters.compute)
    with default_store().write("policy") as draft:
        metrics = learner.update(UpdateBatch.from_turns(sequences, list(advantages.values())), _settings(parameters))
        learner.save(draft.folder)
        draft.metrics.update(metrics, skipped=0.0)
    keep_learner(draft.reference, parameters.compute, learner)
    seconds = time.perf_counter() - began
    default_store().record_clock(draft.reference, {"trained_tokens_per_second": metrics["tokens"] / seconds})
    return draft.reference


def _same_policy(policy: Reference) -> Reference:
    """The policy as it is, as the outcome of an iteration that was skipped."""
    with default_store().write("policy") as draft:
        shutil.copytree(
            default_store().folder(policy), draft.folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns(MANIFEST)
        )
        draft.metrics["skipped"] = 1.0
    return draft.reference


def _settings(parameters: UpdateParameters) -> UpdateSettings:
    return UpdateSettings(
        learning_rate=parameters.learning_rate,
        temperature=parameters.temperature,
        micro_batch_tokens=parameters.micro_batch_tokens,
        clip_low=parameters.clip_low,
        clip_high=parameters.clip_high,
        epochs=parameters.epochs,
        mini_batches=parameters.mini_batches,
        maximum_gradient_norm=parameters.maximum_gradient_norm,
        weight_decay=parameters.weight_decay,
        maximum_mismatch=parameters.maximum_mismatch,
        seed=seeding.derive(parameters.seed, "mini-batches", parameters.iteration),
    )
