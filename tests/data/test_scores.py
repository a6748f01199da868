"""The file of scores: what is written is read back."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from turnwise.data.arrays import Ragged
from turnwise.data.scores import Scores, read_scores, write_scores


def test_scores_are_read_as_they_were_written(tmp_path: Path) -> None:
    written = Scores(Ragged.of([[-0.5, -1.5], [], [-2.0]]), np.array([0.0, 1.0, 2.0]))
    write_scores(tmp_path, written)
    read = read_scores(tmp_path)
    assert read.per_token == written.per_token
    assert read.at_end.tolist() == [0.0, 1.0, 2.0]
