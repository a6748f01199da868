"""Update: one batch of credited trajectories changes the policy."""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Sequence
from typing import Any

from tasks.credit import Credited, read_credit
from tasks.learning import keep_learner, take_learner
from tasks.scores import read_scores
from tasks.stage import stage
from turnwise import seeding
from turnwise.artifacts import MANIFEST, Reference, default_store
from turnwise.policy.learner import UpdateBatch, UpdateSettings
from turnwise.sections import Compute, Optimization, Section
from turnwise.trajectory import TokenSequence, Trajectory, read_trajectories

logger = logging.getLogger(__name__)

NOT_AN_OPTION = ("iterations", "sample")
"""Keys of the optimization section that are no option of `UpdateSettings`."""


class UpdateParameters(Section):
    """What an update reads."""

    compute: Compute
    options: dict[str, Any]
    """Those of `UpdateSettings`, the seed apart."""
    sample: str
    seed: int
    iteration: int

    @classmethod
    def of(
        cls, optimization: Optimization, compute: Compute, temperature: float, seed: int, iteration: int
    ) -> UpdateParameters:
        """The keys of the optimization section that an update reads: all but the number of iterations."""
        options = optimization.model_dump(exclude=set(NOT_AN_OPTION)) | {"temperature": temperature}
        return cls(compute=compute, options=options, sample=optimization.sample, seed=seed, iteration=iteration)


@stage("update")
def update(
    parameters: UpdateParameters,
    *,
    policy: Reference,
    rollout: Reference,
    credit: Reference,
    reference: Reference | None = None,
) -> Reference:
    """The next policy, with its optimizer's state. `reference` holds the reference policy's log-probabilities.

    A batch in which no advantage differs from 0 has nothing to say, unless a bonus or a penalty speaks: it is reported
    and skipped, and the policy stays.
    """
    settings = _settings(parameters)
    credited = read_credit(credit)
    if not credited or (settings.advantages_alone and not any(any(found.turns) for found in credited.values())):
        logger.warning("iteration %d: no group has any spread of reward; the batch is skipped", parameters.iteration)
        return same_policy(policy)
    began = time.perf_counter()
    trajectories = read_trajectories(default_store().folder(rollout))
    batch = _batch(
        [trajectories[index] for index in credited],
        list(credited.values()),
        [read_scores(reference).per_token[index] for index in credited] if reference else None,
    )
    if parameters.sample == "turn":
        batch = batch.turn_by_turn()
    learner = take_learner(policy, parameters.compute)
    with default_store().write("policy") as draft:
        metrics = learner.update(batch, settings)
        learner.save(draft.folder)
        draft.metrics.update(metrics, skipped=0.0)
    keep_learner(draft.reference, parameters.compute, learner)
    seconds = time.perf_counter() - began
    default_store().record_clock(draft.reference, {"trained_tokens_per_second": metrics["tokens"] / seconds})
    return draft.reference


def same_policy(policy: Reference) -> Reference:
    """The policy as it is, as the outcome of an iteration that was skipped."""
    with default_store().write("policy") as draft:
        shutil.copytree(
            default_store().folder(policy), draft.folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns(MANIFEST)
        )
        draft.metrics["skipped"] = 1.0
    return draft.reference


def _batch(
    trajectories: Sequence[Trajectory], credited: Sequence[Credited], reference: Sequence[Sequence[float]] | None
) -> UpdateBatch:
    sequences = [trajectory.flatten() for trajectory in trajectories]
    groups = [trajectory.group for trajectory in trajectories]
    if all(found.tokens is None for found in credited):
        turns = [found.turns for found in credited]
        return UpdateBatch.from_turns(sequences, turns, groups=groups, reference_log_probabilities=reference)
    tokens = [
        _of_trained(found.tokens or [], trajectory, sequence)
        for found, trajectory, sequence in zip(credited, trajectories, sequences, strict=True)
    ]
    return UpdateBatch.from_reply_tokens(sequences, tokens, groups=groups, reference_log_probabilities=reference)


def _of_trained(advantages: Sequence[float], trajectory: Trajectory, trained: TokenSequence) -> list[float]:
    """Of one number per reply token, those of the replies that are trained on."""
    every = trajectory.flatten(every_reply=True)
    following = iter(advantages)
    spread = [next(following) if mask else 0.0 for mask in every.mask]
    return [value for value, mask in zip(spread, trained.mask, strict=True) if mask]


def _settings(parameters: UpdateParameters) -> UpdateSettings:
    seed = seeding.derive(parameters.seed, "mini-batches", parameters.iteration)
    return UpdateSettings.from_options({**parameters.options, "seed": seed})
