"""Score vectors of a policy's episodes: every policy gradient on them is a weighted sum of these."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from tasks.caching import depends_on
from tasks.orchestration.deferred import task
from tasks.restoring import MODELS
from turnwise import progress
from turnwise.config.model_settings import Compute
from turnwise.config.schema import Section
from turnwise.data.arrays import TrajectoryArrays
from turnwise.data.trajectory_files import read_arrays
from turnwise.store import Reference, default_store

VECTORS_FILE = "score_vectors.safetensors"


class VectorsParameters(Section):
    """The parameters of the score vectors."""

    compute: Compute
    group: int
    """The number of the task whose episodes are differentiated."""
    temperature: float
    dimensions: int
    seed: int
    """Seed of the random sketch."""


@task(name="score_vectors", task_run_name="{label}: score_vectors", retries=1)
@depends_on(kernel=("turnwise.policy.adapted", "turnwise.policy.score_vectors"), writes="score vectors 1")
def score_vectors(
    parameters: VectorsParameters, *, policy: Reference, episodes: Reference, label: str = "credit study"
) -> Reference:
    """Compute the sketched score vector of every turn of one task's episodes, in order."""
    from turnwise.policy.score_vectors import score_vectors as compute_score_vectors

    trajectories = read_arrays(default_store().folder(episodes))
    task_trajectories = trajectories.select(np.flatnonzero(trajectories.group == parameters.group))
    sequences, _ = task_trajectories.segments(every_reply=True)
    with MODELS.whole_policy(policy) as folder:
        vectors = compute_score_vectors(
            folder,
            sequences,
            temperature=parameters.temperature,
            dimensions=parameters.dimensions,
            seed=parameters.seed,
            threads=parameters.compute.learner_threads,
            device=parameters.compute.device,
            on_progress=partial(progress.report, "score vectors"),
        )
    with default_store().write("score_vectors") as draft:
        save_file({"score_vectors": vectors}, draft.folder / VECTORS_FILE)
        draft.metrics.update(turns=vectors.shape[0], dimensions=vectors.shape[1])
    return draft.reference


def read_score_vectors(references: Sequence[Reference], trajectories: TrajectoryArrays) -> NDArray[np.float32]:
    """The score vectors of all tasks, in the order of their groups, as [turns, dimensions].

    There is one row per turn of every episode, in the order of `trajectories`.
    """
    group_of_turn = np.repeat(trajectories.group, np.diff(trajectories.offsets))
    order = np.argsort(group_of_turn, kind="stable")
    task_vectors = [load_file(default_store().folder(each) / VECTORS_FILE)["score_vectors"] for each in references]
    vectors: NDArray[np.float32] = np.concatenate(task_vectors)[np.argsort(order)]
    return vectors
