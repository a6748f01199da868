"""Scores: one number per token of a rollout, from a policy that did not sample it or from a critic.

An artifact `scores` has one row per trajectory: `per_token`, and `at_end`, the critic's value after the last token.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet

from tasks.models_in_memory import LearnerParameters, consulted_critic, reference_log_probabilities
from tasks.restoring import opened
from tasks.stage import stage
from turnwise.config.schema import Section
from turnwise.data.arrays import Numbers, Ragged
from turnwise.data.trajectory_files import list_column, numbers_of_column, read_arrays, rows_of_column
from turnwise.store import Draft, Reference, default_store

SCORES_FILE = "scores.parquet"


@dataclass(frozen=True)
class Scores:
    """The scores of a rollout, one row per trajectory."""

    per_token: Ragged
    """From a critic: one value per reply token. From a policy: one log-probability (nats) per token, 0.0 at
    observations. The segments of a trajectory are concatenated."""
    at_end: Numbers
    """From a critic: the value after the last token of the last segment. From a policy: 0.0."""


class ReferenceParameters(Section):
    """The parameters of the reference policy's scores."""

    learner: LearnerParameters
    """How the policy in training is loaded, which with an adapter holds the reference policy, too."""
    temperature: float
    micro_batch_tokens: int


@stage("reference")
def reference(
    parameters: ReferenceParameters, *, policy: Reference, rollout: Reference, adapted: Reference | None = None
) -> Reference:
    """Log-probabilities of the sampled replies under the reference policy, at the sampling temperature.

    With an adapter `adapted` is the policy in training, whose adapter is turned off: its training began with `policy`.
    """
    trajectories = read_arrays(opened(rollout))
    sequences, _ = trajectories.segments(every_reply=True)
    found = reference_log_probabilities(
        policy,
        parameters.learner,
        adapted or policy,
        sequences,
        parameters.temperature,
        parameters.micro_batch_tokens,
    )
    scores = Scores(trajectories.token_rows(found.values), np.zeros(len(trajectories)))
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
    trajectories = read_arrays(opened(rollout))
    sequences, owners = trajectories.segments(every_reply=True)
    with consulted_critic(critic, parameters.learner) as judge:
        found = judge.values(sequences, parameters.micro_batch_tokens)
        ends = judge.bootstrap(sequences, parameters.micro_batch_tokens)
    scores = Scores(trajectories.reply_rows(found.values), np.zeros(len(trajectories)))
    scores.at_end[owners] = ends  # of several segments, the last one's
    with default_store().write("scores") as draft:
        _write(draft, scores)
    return draft.reference


def read_scores(scores: Reference) -> Scores:
    """The scores of a rollout; rows are indexed by trajectory."""
    table = parquet.ParquetFile(default_store().folder(scores) / SCORES_FILE).read()
    return Scores(rows_of_column(table["per_token"]), numbers_of_column(table["at_end"]))


def _write(draft: Draft, scores: Scores) -> None:
    schema = pa.schema([("per_token", pa.list_(pa.float64())), ("at_end", pa.float64())])
    table = pa.table({"per_token": list_column(scores.per_token), "at_end": scores.at_end}, schema=schema)
    parquet.write_table(table, draft.folder / SCORES_FILE)
