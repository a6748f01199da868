"""The critic's stages: it is made beside the policy that reinforcement starts from, and learns from every batch."""

from __future__ import annotations

import shutil
import time

from tasks.credit import read_credit
from tasks.learning import keep_critic, take_critic
from tasks.scores import read_scores
from tasks.stage import stage
from turnwise import seeding
from turnwise.artifacts import MANIFEST, Reference, default_store
from turnwise.policy.critic import Critic, CriticSettings, ValueBatch
from turnwise.sections import Compute, Section
from turnwise.sections import Critic as CriticSection
from turnwise.trajectory import read_trajectories


class CriticParameters(Section):
    """What a critic depends on."""

    compute: Compute
    critic: CriticSection
    seed: int
    iteration: int
    """0 where it is made."""


@stage("initial_critic")
def initial_critic(parameters: CriticParameters, *, policy: Reference) -> Reference:
    """A critic that has learned nothing: every state is worth 0."""
    compute = parameters.compute
    judge = Critic.with_own_trunk(
        default_store().folder(policy), _settings(parameters), threads=compute.learner_threads, device=compute.device
    )
    with default_store().write("critic") as draft:
        judge.save(draft.folder)
    keep_critic(draft.reference, compute, judge)
    return draft.reference


@stage("learn_values")
def learn_values(
    parameters: CriticParameters, *, critic: Reference, rollout: Reference, credit: Reference, values: Reference
) -> Reference:
    """The critic after it has learned from one batch. A batch without a trajectory teaches nothing: it stays."""
    credited, scores = read_credit(credit), read_scores(values)
    if not credited:
        return _same(critic)
    began = time.perf_counter()
    trajectories = read_trajectories(default_store().folder(rollout))
    batch = ValueBatch(
        sequences=tuple(trajectories[index].flatten(every_reply=True) for index in credited),
        values=tuple(tuple(scores.per_token[index]) for index in credited),
        returns=tuple(tuple(found.value_targets or ()) for found in credited.values()),
    )
    judge = take_critic(critic, parameters.compute)
    with default_store().write("critic") as draft:
        draft.metrics.update(judge.update(batch, _settings(parameters)))
        judge.save(draft.folder)
    keep_critic(draft.reference, parameters.compute, judge)
    default_store().record_clock(draft.reference, {"update_seconds": time.perf_counter() - began})
    return draft.reference


def _same(critic: Reference) -> Reference:
    with default_store().write("critic") as draft:
        shutil.copytree(
            default_store().folder(critic), draft.folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns(MANIFEST)
        )
    return draft.reference


def _settings(parameters: CriticParameters) -> CriticSettings:
    return CriticSettings(
        **parameters.critic.model_dump(), seed=seeding.derive(parameters.seed, "critic", parameters.iteration)
    )
