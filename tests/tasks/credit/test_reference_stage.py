"""The stage `reference`: a frozen policy's log-probabilities of what another one sampled."""

from __future__ import annotations

from typing import Any

import pytest
from stage_samples import Small, rewarded, rows

from tasks.credit.credit import CreditParameters, credit
from tasks.credit.scores import ReferenceParameters, reference
from tasks.restoring import MODELS
from tasks.update.update import UpdateParameters, update
from turnwise.config.model_settings import Adapter, LearnerParameters
from turnwise.config.schema import Credit, RewardSection
from turnwise.data.scores import SCORES_FILE
from turnwise.data.trajectory import Trajectory
from turnwise.data.trajectory_files import read_trajectories
from turnwise.store import Reference, default_store

CREDIT = CreditParameters(
    rewards={"goal": RewardSection(level="outcome", weight=1.0)},
    credit=Credit(estimator="rloo", options={}),
    reference=None,
)


def scored(
    small: Small, rollout: Reference | None = None, temperature: float = 1.0, policy: Reference | None = None
) -> list[dict[str, Any]]:
    parameters = ReferenceParameters(
        learner=LearnerParameters(compute=small.experiment.compute), temperature=temperature, micro_batch_tokens=1024
    )
    made = reference.fn(parameters, policy=policy or small.policy, rollout=rollout or small.rollout)
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


def test_with_an_adapter_the_policy_in_training_scores_as_the_one_that_it_began_with(small: Small) -> None:
    adapter = Adapter(rank=2, alpha=4)
    credited = credit.fn(CREDIT, rollout=rewarded(small.rollout, lambda episode: float(episode.replica)))
    section = small.experiment.optimization.model_copy(update={"learning_rate": 0.1, "adapter": adapter})
    training = UpdateParameters.of(section, small.experiment.compute, 1.0, seed=1, iteration=1)
    trained = update.fn(training, policy=small.policy, rollout=small.rollout, credit=credited)
    parameters = ReferenceParameters(learner=training.learner, temperature=1.0, micro_batch_tokens=1024)
    in_memory = len(MODELS._references)

    def scores(policy: Reference, adapted: Reference) -> list[list[float]]:
        made = reference.fn(parameters, policy=policy, rollout=small.rollout, adapted=adapted)
        return [row["per_token"] for row in rows(made, SCORES_FILE)]

    loaded = [row["per_token"] for row in scored(small)]
    for row, expected in zip(scores(small.policy, trained), loaded, strict=True):
        assert row == pytest.approx(expected, abs=1e-5)
    assert scores(small.policy, trained) == scores(small.policy, small.policy), "to the bit, before and after an update"
    assert len(MODELS._references) == max(in_memory, 1), "no copy of the weights but the one loaded above"
    moved = [row["per_token"] for row in scored(small, policy=trained)]
    assert moved[0] != pytest.approx(loaded[0], abs=1e-3), "the adapter has learned something"
