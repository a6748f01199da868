"""The file of credit: what is written is read back, with numbers per token where there are any."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as parquet
import pytest

from turnwise.data.arrays import Advantages, Ragged
from turnwise.data.trajectory_files import CREDIT_FILE, read_advantages, write_credit

BATCH: dict[str, Any] = {
    "group": (0, 0),
    "turn_rewards": Ragged.of([[0.5, 0.0], [1.0]]),
    "outcome": (1.0, 0.0),
    "reply_lengths": Ragged.of([[2, 1], [3]], np.int64),
}
TOKENS = Ragged.of([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])


@pytest.mark.parametrize("tokens", [None, TOKENS])
@pytest.mark.parametrize("targets", [None, TOKENS])
def test_advantages_are_read_as_they_were_written(
    tmp_path: Path, tokens: Ragged | None, targets: Ragged | None
) -> None:
    written = Advantages(np.array([0, 3]), Ragged.of([[0.25, -0.25], [1.0]]), tokens, targets)
    write_credit(tmp_path, written, **BATCH)
    read = read_advantages(tmp_path)
    assert read.trajectories.tolist() == [0, 3]
    assert (read.turns, read.tokens, read.value_targets) == (written.turns, tokens, targets)


def test_the_table_has_a_row_per_turn_with_its_reward_and_the_outcome(tmp_path: Path) -> None:
    write_credit(tmp_path, Advantages(np.array([0, 3]), Ragged.of([[0.25, -0.25], [1.0]])), **BATCH)
    rows = parquet.ParquetFile(tmp_path / CREDIT_FILE).read().to_pylist()
    assert [(row["trajectory"], row["turn"], row["turn_reward"], row["outcome"]) for row in rows] == [
        (0, 0, 0.5, 1.0),
        (0, 1, 0.0, 1.0),
        (3, 0, 1.0, 0.0),
    ]
