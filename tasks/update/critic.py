"""The critic's stages: made when the policy that reinforcement starts from is ready, then trained on every batch.

A critic on the policy's trunk is part of the policy's artifact. It is not made separately, and `learn_values` trains it
only during its warm-up; after that `tasks.update.update` trains it along with the policy.
"""

from __future__ import annotations

import time

import numpy as np

from tasks.caching import depends_on
from tasks.credit.scores import critic_sequences, read_scores
from tasks.orchestration.deferred import task
from tasks.playing import TRAINING, asking_code, hindsight_reads
from tasks.restoring import MODELS, opened
from turnwise import seeding
from turnwise.agent.playing import PlayParameters
from turnwise.config.model_settings import LearnerParameters
from turnwise.config.schema import CriticSection, Section
from turnwise.data.trajectory_files import read_advantages, read_arrays
from turnwise.policy.critic.value_learning import ValueBatch, value_batch
from turnwise.policy.engines.resident import rest_resident_engine
from turnwise.policy.learner.loading import new_critic
from turnwise.policy.model_files import CRITIC, MODEL_FILES
from turnwise.store import Reference, default_store


class CriticParameters(Section):
    """The parameters of the critic's stages."""

    learner: LearnerParameters
    critic: CriticSection
    seed: int
    iteration: int
    """0 when the critic is made."""
    play: PlayParameters | None = None
    """How the episodes were played, where the critic is shown the right answers; else None."""

    @property
    def seed_of_iteration(self) -> int:
        """The seed of random weights, and of the shuffle into mini-batches."""
        return seeding.derive(self.seed, "critic", self.iteration)


@task(name="initial_critic", task_run_name="{label}: initial_critic", retries=1)
@depends_on(kernel=TRAINING, writes=CRITIC)
def initial_critic(parameters: CriticParameters, *, policy: Reference, label: str = "initial_critic") -> Reference:
    """Make a critic with a trunk of its own and no training: the value of every state is 0."""
    rest_resident_engine()
    folder = opened(policy, MODEL_FILES)
    processes = MODELS.learner_processes(parameters.learner.compute)
    judge = new_critic(folder, parameters.critic, parameters.learner, parameters.seed_of_iteration, processes)
    with default_store().write("critic") as draft:
        judge.save(draft.folder)
    MODELS.keep_critic(draft.reference, parameters.learner, judge)
    return draft.reference


@task(name="learn_values", task_run_name="{label}: learn_values", retries=1)
@depends_on(
    kernel=TRAINING,
    writes=CRITIC,
    code=lambda parameters: asking_code(parameters.play, None),
    reads=lambda parameters: hindsight_reads(parameters.play),
)
def learn_values(
    parameters: CriticParameters,
    *,
    critic: Reference,
    rollout: Reference,
    credit: Reference,
    values: Reference,
    tokenizer: Reference | None = None,
    label: str = "learn_values",
) -> Reference:
    """Train the critic on one batch. A batch without a trajectory leaves it unchanged.

    For a critic on the policy's trunk, `critic` and the result are policy artifacts that differ in the critic's head
    alone. A privileged critic needs the `tokenizer`.
    """
    advantages = read_advantages(default_store().folder(credit))
    if not len(advantages.turns):
        with default_store().write(critic.kind) as draft:
            draft.begin_with(opened(critic))
        return draft.reference
    privileged_sequences = None
    if parameters.play is not None:
        sequences, owners = critic_sequences(parameters.play, rollout, tokenizer)
        privileged_sequences = sequences.select(np.searchsorted(owners, advantages.trajectories))
    batch = value_batch(read_arrays(opened(rollout)), advantages, read_scores(values).per_token, privileged_sequences)
    began = time.perf_counter()
    learn = _learn_on_the_policys_trunk if parameters.learner.with_critic else _learn_on_its_own_trunk
    trained_critic = learn(parameters, critic, batch)
    default_store().record_clock(trained_critic, {"update_seconds": time.perf_counter() - began})
    return trained_critic


def _learn_on_its_own_trunk(parameters: CriticParameters, critic: Reference, batch: ValueBatch) -> Reference:
    judge = MODELS.take_critic(critic, parameters.learner)
    with default_store().write("critic") as draft:
        draft.metrics.update(judge.update(batch, parameters.critic, seed=parameters.seed_of_iteration))
        judge.save(draft.folder)
    MODELS.keep_critic(draft.reference, parameters.learner, judge)
    return draft.reference


def _learn_on_the_policys_trunk(parameters: CriticParameters, policy: Reference, batch: ValueBatch) -> Reference:
    learner = MODELS.take_learner(policy, parameters.learner)
    assert learner.critic is not None
    with default_store().write("policy") as draft:
        draft.begin_with(opened(policy))
        draft.metrics.update(learner.critic.update(batch, parameters.critic, seed=parameters.seed_of_iteration))
        learner.critic.save(draft.folder)
    MODELS.keep_learner(draft.reference, parameters.learner, learner)
    return draft.reference
