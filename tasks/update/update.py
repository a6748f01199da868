"""Update: trains the policy on one batch of trajectories with advantages."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Sequence
from itertools import islice

from tasks.credit.credit import Advantages, read_credit
from tasks.credit.scores import by_segment, read_scores
from tasks.models_in_memory import LearnerParameters, begin_with, keep_learner, take_learner
from tasks.stage import stage
from turnwise import seeding
from turnwise.config.model_settings import Compute
from turnwise.config.optimization import Optimization
from turnwise.config.schema import CriticSection, Section
from turnwise.data.trajectory import Trajectory
from turnwise.data.trajectory_files import read_trajectories
from turnwise.policy.learner.update import UpdateBatch, UpdateSettings
from turnwise.store import Reference, default_store

logger = logging.getLogger(__name__)


class UpdateParameters(Section):
    """The parameters of an update."""

    learner: LearnerParameters
    settings: UpdateSettings
    sample: str
    iteration: int

    @classmethod
    def of(
        cls,
        optimization: Optimization,
        compute: Compute,
        temperature: float,
        seed: int,
        iteration: int,
        critic: CriticSection | None = None,
    ) -> UpdateParameters:
        """Take the keys of the optimization section that an update reads, so that its cached result depends on these.

        `critic` is the section of a critic on the policy's trunk, and None for any other.
        """
        return cls(
            learner=LearnerParameters(compute=compute, adapter=optimization.adapter, with_critic=critic is not None),
            settings=UpdateSettings.taken_from(
                optimization,
                temperature=temperature,
                critic=critic,
                seed=seeding.derive(seed, "mini-batches", iteration),
            ),
            sample=optimization.sample,
            iteration=iteration,
        )


@stage("update")
def update(
    parameters: UpdateParameters,
    *,
    policy: Reference,
    rollout: Reference,
    credit: Reference,
    reference: Reference | None = None,
    values: Reference | None = None,
) -> Reference:
    """Train the policy on one batch; the result is the next policy with its optimizer's state.

    `reference` holds the reference policy's log-probabilities. `values` holds the values of a critic on the policy's
    trunk, which is trained in the same update.

    If the advantages of all turns are 0 and no entropy bonus, penalty or critic adds to the loss, the batch is skipped
    with a warning and the policy stays as it is.
    """
    from turnwise.policy.memory import forget_peak_memory, peak_memory_bytes

    settings = parameters.settings
    credited = read_credit(credit)
    if not credited or (settings.advantages_alone and not any(any(found.turns) for found in credited.values())):
        logger.warning("iteration %d: no group has any spread of reward; the batch is skipped", parameters.iteration)
        return same_policy(policy)
    trajectories = read_trajectories(default_store().folder(rollout))
    batch = _batch(
        [trajectories[index] for index in credited],
        list(credited.values()),
        _rows(reference, credited),
        _rows(values, credited),
    )
    if parameters.sample == "turn":
        batch = batch.turn_by_turn()
    learner = take_learner(policy, parameters.learner)
    device = parameters.learner.compute.device
    with default_store().write("policy") as draft:
        forget_peak_memory(device)
        began = time.perf_counter()
        metrics = learner.update(batch, settings)
        seconds, peak = time.perf_counter() - began, peak_memory_bytes(device)
        learner.save(draft.folder)
        draft.metrics.update(metrics, skipped=0.0)
    keep_learner(draft.reference, parameters.learner, learner)
    default_store().record_clock(
        draft.reference, {"trained_tokens_per_second": metrics["tokens"] / seconds, "peak_memory_bytes": float(peak)}
    )
    return draft.reference


def same_policy(policy: Reference) -> Reference:
    """Save the policy unchanged, as the result of an iteration that was skipped."""
    with default_store().write("policy") as draft:
        begin_with(draft, policy)
        draft.metrics["skipped"] = 1.0
    return draft.reference


def _rows(scores: Reference | None, credited: Iterable[int]) -> list[list[float]] | None:
    """The scores of the trajectories that are trained on; None where there are no scores."""
    if scores is None:
        return None
    per_token = read_scores(scores).per_token
    return [per_token[index] for index in credited]


def _batch(
    trajectories: Sequence[Trajectory],
    credited: Sequence[Advantages],
    reference: Sequence[Sequence[float]] | None,
    values: Sequence[Sequence[float]] | None,
) -> UpdateBatch:
    """Build the update batch: one sequence per segment. All segments of a trajectory form one sample."""
    segments = [trajectory.segments() for trajectory in trajectories]
    sequences = [segment for of_trajectory in segments for segment in of_trajectory]
    samples = [number for number, of_trajectory in enumerate(segments) for _ in of_trajectory]
    groups = [trajectories[number].group for number in samples]
    references = None if reference is None else by_segment(reference, segments)

    def of_trained(rows: Iterable[Sequence[float]]) -> list[list[float]]:
        return [part for row in zip(rows, trajectories, strict=True) for part in _of_trained(*row)]

    if all(found.tokens is None for found in credited):
        turns = [credited[number].turns for number in samples]
        batch = UpdateBatch.from_turns(
            sequences, turns, groups=groups, samples=samples, reference_log_probabilities=references
        )
    else:
        tokens = of_trained(found.tokens or [] for found in credited)
        batch = UpdateBatch.from_reply_tokens(
            sequences, tokens, groups=groups, samples=samples, reference_log_probabilities=references
        )
    if values is None:
        return batch
    return batch.with_values(of_trained(values), of_trained(found.value_targets or [] for found in credited))


def _of_trained(numbers: Sequence[float], trajectory: Trajectory) -> list[list[float]]:
    """Of one number per reply token, keep those of the trained replies, grouped by segment."""
    following = iter(numbers)
    of_turns = [list(islice(following, len(turn.reply_tokens))) for turn in trajectory.turns]
    return [
        [number for index in turns if trajectory.turns[index].trained for number in of_turns[index]]
        for turns in trajectory.segment_turns
    ]
