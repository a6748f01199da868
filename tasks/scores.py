"""Scores: one number per token of a rollout, by a policy that did not sample it or by a critic.

An artifact `scores` has one row per trajectory: `per_token`, and `at_end`, the critic's value after the last token.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as parquet

from tasks.learning import LearnerParameters, consulted_critic, reference_policy
from tasks.stage import stage
from turnwise.artifacts import Draft, Reference, default_store
from turnwise.sections import Compute, Section
from turnwise.trajectory import TokenSequence, read_trajectories

SCORES_FILE = "scores.parquet"


@dataclass(frozen=True)
class Scores:
    """One row per trajectory of the rollout."""

    per_token: list[list[float]]
    """By a critic: one value per reply token. By a policy: one log-probability per token, 0.0 at observations."""
    at_end: list[float]


class ReferenceParameters(Section):
    """What the reference policy's scores depend on."""

    compute: Compute
    temperature: float
    micro_batch_tokens: int


@stage("reference")
def reference(parameters: ReferenceParameters, *, policy: Reference, rollout: Reference) -> Reference:
    """The log-probabilities that the reference policy gives to the sampled replies, at the sampling's temperature."""
    indices, sequences, count = _sequences(rollout)
    learner = reference_policy(policy, parameters.compute)
    found = learner.log_probabilities(sequences, parameters.temperature, parameters.micro_batch_tokens)
    scores = Scores([[] for _ in range(count)], [0.0] * count)
    for index, row in zip(indices, found, strict=True):
        scores.per_token[index] = row
    with default_store().write("scores") as draft:
        _write(draft, scores)
    return draft.reference


class ValuesParameters(Section):
    """What a critic's scores depend on."""

    learner: LearnerParameters
    micro_batch_tokens: int


@stage("values")
def values(parameters: ValuesParameters, *, critic: Reference, rollout: Reference) -> Reference:
    """The critic's value of the state before each reply token, and after the last. `critic` is the policy's artifact
    where it stands on the policy's trunk.
    """
    indices, sequences, count = _sequences(rollout)
    with consulted_critic(critic, parameters.learner) as judge:
        found = judge.values(sequences, parameters.micro_batch_tokens)
        ends = judge.bootstrap(sequences, parameters.micro_batch_tokens)
    scores = Scores([[] for _ in range(count)], [0.0] * count)
    for index, row, end in zip(indices, found, ends, strict=True):
        scores.per_token[index], scores.at_end[index] = row, end
    with default_store().write("scores") as draft:
        _write(draft, scores)
    return draft.reference


def read_scores(scores: Reference) -> Scores:
    """The scores of a rollout, by the index of the trajectory."""
    table = parquet.read_table(default_store().folder(scores) / SCORES_FILE)
    return Scores(table["per_token"].to_pylist(), table["at_end"].to_pylist())


def _sequences(rollout: Reference) -> tuple[list[int], list[TokenSequence], int]:
    """The token sequences of the trajectories that have a reply, with their indices, and the number of all."""
    trajectories = read_trajectories(default_store().folder(rollout))
    indices = [index for index, trajectory in enumerate(trajectories) if trajectory.turns]
    return indices, [trajectories[index].flatten(every_reply=True) for index in indices], len(trajectories)


def _write(draft: Draft, scores: Scores) -> None:
    schema = pa.schema([("per_token", pa.list_(pa.float64())), ("at_end", pa.float64())])
    table = pa.table({"per_token": scores.per_token, "at_end": scores.at_end}, schema=schema)
    parquet.write_table(table, draft.folder / SCORES_FILE)
