"""The episodes of an evaluation come back by the way in which their replies were chosen."""

from __future__ import annotations

from pathlib import Path

import pytest
from data_samples import TWO_TURNS

from turnwise.data.evaluations import GREEDY, SAMPLED, read_evaluation
from turnwise.data.trajectory_files import write_trajectories
from turnwise.store import default_store


@pytest.mark.usefixtures("turnwise_home")
def test_the_episodes_of_a_mode_are_read_and_a_mode_that_was_not_played_has_none() -> None:
    with default_store().write("evaluation") as draft:
        folder = Path(draft.folder) / SAMPLED
        folder.mkdir()
        write_trajectories(folder, [TWO_TURNS], [])
    assert draft.reference is not None
    assert read_evaluation(draft.reference, SAMPLED) == [TWO_TURNS]
    assert read_evaluation(draft.reference, GREEDY) == []
