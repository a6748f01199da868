"""Scores: one number per token of a rollout, from a policy that did not sample it or from a critic; and their file.

The file has one row per trajectory: `per_token`, and `at_end`, the critic's value after the last token.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as parquet

from turnwise.data.arrays import Numbers, Ragged
from turnwise.data.trajectory_files import list_column, numbers_of_column, rows_of_column

SCORES = "scores 1"
"""The layout of these files. It is in the cache key of who writes them: a changed layout gets another number."""
SCORES_FILE = "scores.parquet"


@dataclass(frozen=True)
class Scores:
    """The scores of a rollout, one row per trajectory."""

    per_token: Ragged
    """From a critic: one value per reply token. From a policy: one log-probability (nats) per token, 0.0 at
    observations. The segments of a trajectory are concatenated."""
    at_end: Numbers
    """From a critic: the value after the last token of the last segment. From a policy: 0.0."""


def write_scores(folder: Path, scores: Scores) -> None:
    """Write the scores of a rollout into a folder."""
    schema = pa.schema([("per_token", pa.list_(pa.float64())), ("at_end", pa.float64())])
    table = pa.table({"per_token": list_column(scores.per_token), "at_end": scores.at_end}, schema=schema)
    parquet.write_table(table, folder / SCORES_FILE)


def read_scores(folder: Path) -> Scores:
    """The scores of a rollout, from a folder that `write_scores` wrote into; rows are indexed by trajectory."""
    table = parquet.ParquetFile(folder / SCORES_FILE).read()
    return Scores(rows_of_column(table["per_token"]), numbers_of_column(table["at_end"]))
