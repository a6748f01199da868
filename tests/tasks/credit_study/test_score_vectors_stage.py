"""The stage `score_vectors`: a sketched gradient of the log-probability of every turn."""

from __future__ import annotations

import numpy as np
from stage_samples import Small
from study_samples import played, vectors_of

from tasks.credit_study.score_vectors import read_score_vectors
from turnwise.data.trajectory_files import read_trajectories
from turnwise.store import default_store


def test_every_turn_has_a_vector_of_its_own(small: Small) -> None:
    episodes = played(small)
    turns = sum(len(each.turns) for each in read_trajectories(default_store().folder(episodes)))
    reference = vectors_of(small, episodes)
    found = read_score_vectors(reference)
    assert found.shape == (turns, 8) and found.dtype == np.float32
    assert default_store().metrics(reference) == {"turns": turns, "dimensions": 8}
    assert np.isfinite(found).all() and (np.abs(found).max(axis=1) > 0).all()
    assert len({row.tobytes() for row in found}) == turns


def test_the_sketch_is_a_function_of_its_seed(small: Small) -> None:
    episodes = played(small)
    assert vectors_of(small, episodes) == vectors_of(small, episodes) != vectors_of(small, episodes, seed=4)
