"""Episodes of the small policy, and what is computed from them for a credit study."""

from __future__ import annotations

from dataclasses import dataclass

from stage_samples import Small

from tasks.credit_study.replays import EpisodesParameters, ReplaysParameters, replays, study_episodes
from tasks.credit_study.score_vectors import VectorsParameters, score_vectors
from turnwise.store import Reference


@dataclass(frozen=True)
class Studied:
    """Two episodes of each of three validation tasks, and what was computed from them."""

    episodes: Reference
    replays: list[Reference]
    """Those of each task."""
    vectors: list[Reference]
    """Those of each task."""


def played(small: Small, seed: int = 7) -> Reference:
    """Two episodes of each of the first three validation tasks."""
    parameters = EpisodesParameters(
        **dict(small.play), compute=small.experiment.compute, tasks=3, replicas=2, temperature=1.0, seed=seed
    )
    return study_episodes.fn(
        parameters, policy=small.policy, tokenizer=small.tokenizer, task_set=small.task_sets["validation"]
    )


def continued(small: Small, episodes: Reference, count: int = 2, seed: int = 7) -> list[Reference]:
    """So many continuations from every state of the episodes, those of each task."""
    return [continued_task(small, episodes, group, count, seed) for group in range(3)]


def continued_task(small: Small, episodes: Reference, group: int, count: int = 2, seed: int = 7) -> Reference:
    """So many continuations from every state of one task's episodes."""
    parameters = ReplaysParameters(
        **dict(small.play), compute=small.experiment.compute, group=group, replays=count, temperature=1.0, seed=seed
    )
    return replays.fn(parameters, policy=small.policy, tokenizer=small.tokenizer, episodes=episodes)


def vectors_of(small: Small, episodes: Reference, dimensions: int = 8, seed: int = 3) -> list[Reference]:
    """The sketched score vectors of the episodes' turns, those of each task."""
    return [
        score_vectors.fn(
            VectorsParameters(
                compute=small.experiment.compute, group=group, temperature=1.0, dimensions=dimensions, seed=seed
            ),
            policy=small.policy,
            episodes=episodes,
        )
        for group in range(3)
    ]


def studied(small: Small) -> Studied:
    """All of it."""
    episodes = played(small)
    return Studied(episodes, continued(small, episodes), vectors_of(small, episodes))
