"""The stage `learn_values`: one batch of value learning."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from stage_samples import Small, rewarded, rows, saved

from envs.frozen_lake import FrozenLake
from tasks.credit.credit import CreditParameters, credit
from tasks.credit.scores import ValuesParameters, values
from tasks.update.critic import CriticParameters, initial_critic, learn_values
from turnwise.agent.playing import PlayParameters
from turnwise.config.model_settings import LearnerParameters
from turnwise.config.schema import Credit, RewardSection
from turnwise.data.scores import SCORES_FILE
from turnwise.data.trajectory import Ending
from turnwise.data.trajectory_files import read_trajectories
from turnwise.store import Reference, default_store

CREDIT = CreditParameters(
    rewards={"goal": RewardSection(level="outcome", weight=1.0)},
    credit=Credit(estimator="gae", options={"whiten": False}),
    reference=None,
)


def parameters(small: Small, iteration: int, **changes: Any) -> CriticParameters:
    critic = small.experiment.critic.model_copy(update={"learning_rate": 1e-2, "clip": None, "epochs": 3, **changes})
    return CriticParameters(
        learner=LearnerParameters(compute=small.experiment.compute), critic=critic, seed=1, iteration=iteration
    )


def valued(small: Small, critic: Reference, rollout: Reference, play: PlayParameters | None = None) -> Reference:
    asked = ValuesParameters(
        learner=LearnerParameters(compute=small.experiment.compute), micro_batch_tokens=1024, play=play
    )
    return values.fn(asked, critic=critic, rollout=rollout, tokenizer=small.tokenizer)


def mean_value(small: Small, critic: Reference, rollout: Reference) -> float:
    found = [value for row in rows(valued(small, critic, rollout), SCORES_FILE) for value in row["per_token"]]
    return sum(found) / len(found)


def learned(small: Small, rollout: Reference, play: PlayParameters | None = None) -> tuple[Reference, Reference]:
    """The critic before and after one batch; a privileged one with `play`."""
    first = initial_critic.fn(parameters(small, 0), policy=small.policy)
    scores = valued(small, first, rollout, play)
    credited = credit.fn(CREDIT, rollout=rollout, values=scores)
    batch = {"rollout": rollout, "credit": credited, "values": scores, "tokenizer": small.tokenizer}
    made = learn_values.fn(parameters(small, 1).changed(play=play), critic=first, **batch)
    return first, made


@pytest.mark.parametrize("goal", [1.0, -1.0])
def test_values_move_towards_what_was_earned(small: Small, goal: float) -> None:
    rollout = rewarded(small.rollout, lambda episode: goal)
    first, after = learned(small, rollout)
    assert mean_value(small, first, rollout) == 0.0
    assert 0.0 < goal * mean_value(small, after, rollout) < 2.0
    assert default_store().metrics(after)["value_gradient_norm"] > 0


def test_the_same_batch_gives_the_same_critic(small: Small) -> None:
    rollout = rewarded(small.rollout, lambda episode: float(episode.replica))
    assert learned(small, rollout)[1] == learned(small, rollout)[1]


def test_a_batch_without_a_trajectory_leaves_the_critic_as_it_is(small: Small) -> None:
    first, after = learned(small, saved([]))
    files = [default_store().manifest(each).files for each in (first, after)]
    assert files[0] == files[1]


def test_an_episode_without_a_turn_changes_nothing_of_what_a_privileged_critic_learns(
    small: Small, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Its first message left no room for a reply. Only the episodes after it show a shift by one.
    monkeypatch.setattr(FrozenLake, "answer", lambda world, task: "Left", raising=False)
    played = [
        replace(each, group=0, replica=number)
        for number, each in enumerate(read_trajectories(default_store().folder(small.rollout)))
    ]
    paid = rewarded(saved(played), lambda episode: float(episode.replica))
    empty = replace(played[0], replica=len(played), turns=(), ending=Ending.TOKEN_BUDGET)
    with_empty = saved([empty, *read_trajectories(default_store().folder(paid))])
    critics = [learned(small, rollout, play=small.play)[1] for rollout in (paid, with_empty)]
    assert critics[0] == critics[1]
