"""Scores: one number per token of a rollout, from a policy that did not sample it or from a critic.

An artifact `scores` has one row per trajectory: `per_token`, and `at_end`, the critic's value after the last token.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

import pyarrow as pa
import pyarrow.parquet as parquet

from tasks.models_in_memory import LearnerParameters, consulted_critic, reference_policy
from tasks.stage import stage
from turnwise.config.model_settings import Compute
from turnwise.config.schema import Section
from turnwise.data.trajectory import TokenSequence
from turnwise.data.trajectory_files import read_trajectories
from turnwise.store import Draft, Reference, default_store

SCORES_FILE = "scores.parquet"


@dataclass(frozen=True)
class Scores:
    """The scores of a rollout, one row per trajectory."""

    per_token: list[list[float]]
    """From a critic: one value per reply token. From a policy: one log-probability (nats) per token, 0.0 at
    observations. The segments of a trajectory are concatenated: see `by_segment`."""
    at_end: list[float]
    """From a critic: the value after the last token of the last segment. From a policy: 0.0."""


class ReferenceParameters(Section):
    """The parameters of the reference policy's scores."""

    compute: Compute
    temperature: float
    micro_batch_tokens: int


@stage("reference")
def reference(parameters: ReferenceParameters, *, policy: Reference, rollout: Reference) -> Reference:
    """Log-probabilities of the sampled replies under the reference policy, at the sampling temperature."""
    owners, sequences, count = _sequences(rollout)
    learner = reference_policy(policy, parameters.compute)
    found = learner.log_probabilities(sequences, parameters.temperature, parameters.micro_batch_tokens)
    scores = Scores([[] for _ in range(count)], [0.0] * count)
    for owner, row in zip(owners, found, strict=True):
        scores.per_token[owner] += row
    with default_store().write("scores") as draft:
        _write(draft, scores)
    return draft.reference


class ValuesParameters(Section):
    """The parameters of a critic's scores."""

    learner: LearnerParameters
    micro_batch_tokens: int


@stage("values")
def values(parameters: ValuesParameters, *, critic: Reference, rollout: Reference) -> Reference:
    """The critic's value of the state before each reply token and after the last one.

    For a critic on the policy's trunk, `critic` is the policy's artifact.
    """
    owners, sequences, count = _sequences(rollout)
    with consulted_critic(critic, parameters.learner) as judge:
        found = judge.values(sequences, parameters.micro_batch_tokens)
        ends = judge.bootstrap(sequences, parameters.micro_batch_tokens)
    scores = Scores([[] for _ in range(count)], [0.0] * count)
    for owner, row, end in zip(owners, found, ends, strict=True):
        scores.per_token[owner] += row
        scores.at_end[owner] = end
    with default_store().write("scores") as draft:
        _write(draft, scores)
    return draft.reference


def read_scores(scores: Reference) -> Scores:
    """The scores of a rollout; rows are indexed by trajectory."""
    table = parquet.read_table(default_store().folder(scores) / SCORES_FILE)
    return Scores(table["per_token"].to_pylist(), table["at_end"].to_pylist())


def by_segment(rows: Sequence[Sequence[float]], segments: Sequence[Sequence[TokenSequence]]) -> list[Sequence[float]]:
    """Split rows of one number per token, one row per trajectory, into one row per segment."""
    parts = []
    for row, of_trajectory in zip(rows, segments, strict=True):
        ends = list(accumulate(len(segment.tokens) for segment in of_trajectory))
        parts += [row[begin:end] for begin, end in pairwise([0, *ends])]
    return parts


def _sequences(rollout: Reference) -> tuple[list[int], list[TokenSequence], int]:
    """All segments, the trajectory index of each, and the number of trajectories."""
    trajectories = read_trajectories(default_store().folder(rollout))
    segments = [trajectory.segments(every_reply=True) for trajectory in trajectories]
    owners = [index for index, of_trajectory in enumerate(segments) for _ in of_trajectory]
    return owners, [segment for of_trajectory in segments for segment in of_trajectory], len(trajectories)


def _write(draft: Draft, scores: Scores) -> None:
    schema = pa.schema([("per_token", pa.list_(pa.float64())), ("at_end", pa.float64())])
    table = pa.table({"per_token": scores.per_token, "at_end": scores.at_end}, schema=schema)
    parquet.write_table(table, draft.folder / SCORES_FILE)
