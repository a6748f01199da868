"""The stage `reference`: a frozen policy's log-probabilities of what another one sampled."""

from __future__ import annotations

from typing import Any

import pytest
from stage_samples import Small, rows

from tasks.credit.scores import SCORES_FILE, ReferenceParameters, reference
from turnwise.data.trajectory import Trajectory
from turnwise.data.trajectory_files import read_trajectories
from turnwise.store import Reference, default_store


def scored(small: Small, rollout: Reference | None = None, temperature: float = 1.0) -> list[dict[str, Any]]:
    parameters = ReferenceParameters(compute=small.experiment.compute, temperature=temperature, micro_batch_tokens=1024)
    made = reference.function(parameters, policy=small.policy, rollout=rollout or small.rollout)
    return rows(made, SCORES_FILE)


def tokens_of(episode: Trajectory) -> list[float | None]:
    """Per token of an episode with one segment: the sampled log-probability, or None for an observation's."""
    found: list[float | None] = []
    for turn in episode.turns:
        found += [*[None] * len(turn.observation_tokens), *turn.log_probabilities]
    return found


def test_the_policy_that_sampled_gives_what_was_recorded_and_nothing_to_observations(small: Small) -> None:
    episodes = read_trajectories(default_store().folder(small.rollout))
    found = scored(small)
    assert len(found) == len(episodes) == 6
    for row, episode in zip(found, episodes, strict=True):
        expected = tokens_of(episode)
        assert len(row["per_token"]) == len(expected)
        assert row["at_end"] == 0.0
        for value, recorded in zip(row["per_token"], expected, strict=True):
            assert value == (0.0 if recorded is None else pytest.approx(recorded, abs=1e-4))


def test_the_temperature_is_that_of_the_distribution(small: Small) -> None:
    # Log-probabilities of an untrained policy are near those of a uniform one, and hotter ones nearer.
    cold, hot = (
        [value for row in scored(small, temperature=temperature) for value in row["per_token"] if value != 0.0]
        for temperature in (0.1, 100.0)
    )
    assert max(hot) - min(hot) < 0.1 < max(cold) - min(cold)
