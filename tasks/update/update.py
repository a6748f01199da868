"""Update: trains the policy on one batch of trajectories with advantages."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

import numpy as np

from tasks.caching import depends_on
from tasks.credit.scores import read_scores
from tasks.orchestration.deferred import task
from tasks.playing import TRAINING, asking_code, frame_of, hindsight_reads
from tasks.restoring import MODELS, opened, trajectories_of
from turnwise import seeding
from turnwise.agent.playing import PlayParameters, episode_config
from turnwise.config.model_settings import Compute, LearnerParameters
from turnwise.config.optimization import Optimization
from turnwise.config.schema import CriticSection, Section
from turnwise.data.arrays import Ragged, TrajectoryArrays
from turnwise.data.trajectory_files import read_advantages, read_arrays
from turnwise.policy.adaptive_penalty import NEXT_COEFFICIENT, coefficient_metrics, penalty_after
from turnwise.policy.learner.update import UpdateBatch, UpdateSettings, update_batch
from turnwise.policy.model_files import POLICY
from turnwise.policy.models_in_memory import base_reference
from turnwise.store import Reference, default_store
from turnwise.store.plugin_identity import Outside

if TYPE_CHECKING:
    from turnwise.policy.learner.distillation import Teacher

logger = logging.getLogger(__name__)


class UpdateParameters(Section):
    """The parameters of an update."""

    learner: LearnerParameters
    settings: UpdateSettings
    sample: str
    iteration: int
    play: PlayParameters | None = None
    """How the episodes were played, where the policy is shown what came of them; else None."""
    teacher: Outside | None = None
    """The model that distillation learns from, in place of the policy in hindsight."""

    @classmethod
    def of(
        cls,
        optimization: Optimization,
        compute: Compute,
        temperature: float,
        seed: int,
        iteration: int,
        critic: CriticSection | None = None,
        untrained: int = 0,
        play: PlayParameters | None = None,
        teacher: Outside | None = None,
    ) -> UpdateParameters:
        """Take the keys of the optimization section that an update reads, so that its cached result depends on these.

        `critic` is the section of a critic on the policy's trunk, and None for any other. `untrained` is the number of
        the run's iterations that do not train the policy: those of a critic's warm-up.
        """
        falls = optimization.learning_rate_schedule != "constant"
        steps = (optimization.iterations - untrained) * optimization.epochs * optimization.mini_batches
        return cls(
            learner=LearnerParameters(compute=compute, adapter=optimization.adapter, with_critic=critic is not None),
            settings=UpdateSettings.taken_from(
                optimization,
                temperature=temperature,
                critic=critic,
                run_steps=steps if falls else None,
                seed=seeding.derive(seed, "mini-batches", iteration),
            ),
            sample=optimization.sample,
            iteration=iteration,
            play=play,
            teacher=teacher,
        )


@task(name="update", task_run_name="{label}: update", retries=1)
@depends_on(
    kernel=(*TRAINING, "turnwise.policy.adaptive_penalty"),
    writes=POLICY,
    code=lambda parameters: asking_code(parameters.play, parameters.teacher),
    reads=lambda parameters: hindsight_reads(parameters.play),
)
def update(
    parameters: UpdateParameters,
    *,
    policy: Reference,
    rollout: Reference,
    credit: Reference,
    reference: Reference | None = None,
    values: Reference | None = None,
    sampler: Reference | None = None,
    tokenizer: Reference | None = None,
    label: str = "update",
) -> Reference:
    """Train the policy on one batch; the result is the next policy with its optimizer's state.

    `reference` holds the reference policy's log-probabilities. `values` holds the values of a critic on the policy's
    trunk, which is trained in the same update. `sampler` is the policy that sampled the rollout, where that is not
    `policy` but an older one (`rollout.lag`). Distillation needs the `tokenizer`, which spells what is shown.

    If the advantages of all tokens are 0 and no entropy bonus, penalty or critic adds to the loss, the batch is skipped
    with a warning and the policy stays as it is.
    """
    settings, batch, teacher = batch_of(parameters, policy, rollout, credit, reference, values, tokenizer)
    if batch is None:
        logger.warning("iteration %d: no group has any spread of reward; the batch is skipped", parameters.iteration)
        return same_policy(policy, parameters.learner)
    learner = MODELS.take_learner(policy, parameters.learner)
    older = None
    if sampler is not None:  # compiling it for one micro-batch would take longer than that
        older = MODELS.frozen_policy(sampler, parameters.learner.compute.changed(compiled=False))
    with default_store().write("policy") as draft:
        learner.forget_peak_memory()
        began = time.perf_counter()
        metrics = learner.update(batch, settings, older, teacher)
        seconds, peak = time.perf_counter() - began, learner.peak_memory_bytes()
        learner.save(draft.folder)
        samples = len(batch.sequences_of_samples)
        penalty_metrics = coefficient_metrics(settings.reference, metrics.get("kl_reference", 0.0), samples)
        draft.metrics.update({**metrics, **penalty_metrics}, skipped=0.0)
    MODELS.keep_learner(draft.reference, parameters.learner, learner)
    default_store().record_clock(
        draft.reference, {"trained_tokens_per_second": metrics["tokens"] / seconds, "peak_memory_bytes": float(peak)}
    )
    return draft.reference


def batch_of(
    parameters: UpdateParameters,
    policy: Reference,
    rollout: Reference,
    credit: Reference,
    reference: Reference | None,
    values: Reference | None,
    tokenizer: Reference | None,
) -> tuple[UpdateSettings, UpdateBatch | None, Teacher | None]:
    """The settings, the batch and the teacher of an update: those of `update`, whose arguments these are.

    The batch is None where nothing in it has a gradient.
    """
    settings = parameters.settings
    if settings.reference is not None:
        penalty = penalty_after(settings.reference, default_store().metrics(policy))
        settings = settings.changed(reference=penalty)
    advantages = read_advantages(default_store().folder(credit))
    if not len(advantages.turns) or (settings.advantages_alone and not advantages.has_signal):
        return settings, None, None
    arrays = read_arrays(opened(rollout))
    teacher, teacher_rows = None, None
    if settings.distillation is not None:
        teacher, teacher_rows = _load_teacher(parameters, arrays, rollout, tokenizer)
    batch = update_batch(
        arrays,
        advantages,
        None if reference is None else read_scores(reference).per_token,
        None if values is None else read_scores(values).per_token,
        teacher_rows,
    )
    return settings, batch.turn_by_turn() if parameters.sample == "turn" else batch, teacher


def _load_teacher(
    parameters: UpdateParameters, arrays: TrajectoryArrays, rollout: Reference, tokenizer: Reference | None
) -> tuple[Teacher, Ragged]:
    """Who is learned from, and the number of each reply token of the rollout among those that the teacher reads."""
    from turnwise.agent.hindsight import shown_hindsight
    from turnwise.policy.learner.distillation import Teacher

    assert tokenizer is not None, "a teacher must have the policy's tokens, and hindsight is spelled with them"
    rows = arrays.reply_rows(np.full(len(arrays.reply_tokens.values), -1.0))
    if parameters.teacher is not None:
        rows.values[:] = np.arange(len(rows.values))
        by = MODELS.teacher_policy(parameters.teacher, tokenizer, parameters.learner.compute)
        return Teacher(arrays.segments(every_reply=True)[0], by), rows
    assert parameters.play is not None, "hindsight is shown as the episodes were played"
    rules = episode_config(parameters.play, frame_of(tokenizer))
    indices, sequences = shown_hindsight(trajectories_of(rollout), rules)
    places = rows.places(indices)
    rows.values[places] = np.arange(len(places))
    return Teacher(sequences), rows


def same_policy(policy: Reference, parameters: LearnerParameters) -> Reference:
    """Save the policy unchanged, as the result of an iteration that was skipped.

    Where an adapter is yet to be trained it is saved as it begins, which changes nothing: a copy of the weights that it
    belongs to would be what later iterations belong to.
    """
    begins = parameters.adapter is not None and base_reference(policy) is None
    with default_store().write("policy") as draft:
        draft.metrics["skipped"] = 1.0
        if (next_coefficient := default_store().metrics(policy).get(NEXT_COEFFICIENT)) is not None:
            draft.metrics[NEXT_COEFFICIENT] = next_coefficient
        if begins:
            learner = MODELS.take_learner(policy, parameters)
            learner.save(draft.folder)
        else:
            draft.begin_with(opened(policy))
    if begins:
        MODELS.keep_learner(draft.reference, parameters, learner)
    return draft.reference
