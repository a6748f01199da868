"""The stage `score_vectors`: a sketched gradient of the log-probability of every turn of one task's episodes."""

from __future__ import annotations

import numpy as np
import pytest
from stage_samples import Small
from study_samples import played, vectors_of

from tasks.credit_study.score_vectors import read_score_vectors
from turnwise.data.trajectory_files import read_arrays
from turnwise.policy.score_vectors import score_vectors
from turnwise.store import default_store


def test_every_turn_has_a_vector_of_its_own(small: Small) -> None:
    episodes = read_arrays(default_store().folder(played(small)))
    references = vectors_of(small, played(small))
    found = read_score_vectors(references, episodes)
    turns = int(episodes.offsets[-1])
    assert found.shape == (turns, 8) and found.dtype == np.float32
    of_tasks = [default_store().metrics(each) for each in references]
    assert sum(each["turns"] for each in of_tasks) == turns and {each["dimensions"] for each in of_tasks} == {8}
    assert np.isfinite(found).all() and (np.abs(found).max(axis=1) > 0).all()
    assert len({row.tobytes() for row in found}) == turns


@pytest.mark.parametrize("interleaved", [False, True])
def test_the_vectors_of_all_tasks_are_in_the_order_of_the_episodes(small: Small, interleaved: bool) -> None:
    episodes = read_arrays(default_store().folder(played(small)))
    if interleaved:
        episodes = episodes.select(np.argsort(episodes.replica, kind="stable"))
        assert episodes.group.tolist() == [0, 1, 2, 0, 1, 2]
    at_once = score_vectors(
        default_store().folder(small.policy),
        episodes.segments(every_reply=True)[0],
        temperature=1.0,
        dimensions=8,
        seed=3,
        threads=small.experiment.compute.learner_threads,
    )
    assert np.array_equal(read_score_vectors(vectors_of(small, played(small)), episodes), at_once)


def test_the_sketch_is_a_function_of_its_seed(small: Small) -> None:
    episodes = played(small)
    assert vectors_of(small, episodes) == vectors_of(small, episodes) != vectors_of(small, episodes, seed=4)
