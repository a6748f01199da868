"""The file of a rollout's credit: one row per turn, written by the stage that computes it and read by those that train.

trajectory, group, turn             which turn it is
turn_reward, outcome                its weighted reward, and that of its trajectory
advantage                           of the turn
token_advantages, value_targets     one number per reply token, where tokens have them; else null
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet

from turnwise.credit import Advantages, CreditBatch
from turnwise.data.arrays import Ragged, offsets_of
from turnwise.data.trajectory_files import list_column, numbers_of_column, rows_of_column

CREDIT = "credit 1"
"""The layout of these files. It is in the cache key of who writes them: a changed layout gets another number."""
CREDIT_FILE = "credit.parquet"


def write_credit(folder: Path, batch: CreditBatch, advantages: Advantages) -> None:
    """Write the credit table of a batch into a folder: one row per turn, a list per reply token where there are any."""
    assert batch.reply_lengths is not None, "credit is stored reply by reply"
    turns = batch.turn_rewards.lengths
    columns: dict[str, Any] = {
        "trajectory": np.repeat(advantages.trajectories, turns).astype(np.int32),
        "group": np.repeat(np.array(batch.group, dtype=np.int32), turns),
        "turn": np.concatenate([np.arange(0), *map(np.arange, turns)]).astype(np.int32),
        "turn_reward": batch.turn_rewards.values,
        "outcome": np.repeat(np.array(batch.outcome, dtype=np.float64), turns),
        "advantage": advantages.turns.values,
    }
    for name, rows in (("token_advantages", advantages.tokens), ("value_targets", advantages.value_targets)):
        lists = None if rows is None else list_column(Ragged(rows.values, batch.turn_tokens))
        columns[name] = pa.nulls(int(turns.sum()), pa.list_(pa.float64())) if lists is None else lists
    parquet.write_table(pa.table(columns), folder / CREDIT_FILE)


def read_advantages(folder: Path) -> Advantages:
    """The advantages of a rollout's trajectories, as arrays, from a folder that `write_credit` wrote into."""
    table = parquet.ParquetFile(folder / CREDIT_FILE).read()
    trajectories, turns = np.unique(numbers_of_column(table["trajectory"]), return_counts=True)
    offsets = offsets_of(turns)

    def of_tokens(name: str) -> Ragged | None:
        if table[name].null_count == len(table):
            return None
        lists = rows_of_column(table[name])
        return Ragged(lists.values, lists.offsets[offsets])

    return Advantages(
        trajectories.astype(np.int64),
        Ragged(numbers_of_column(table["advantage"]), offsets),
        of_tokens("token_advantages"),
        of_tokens("value_targets"),
    )
