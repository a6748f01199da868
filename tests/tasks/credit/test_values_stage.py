"""The stage `values`: a critic's value before every reply token, and after the last."""

from __future__ import annotations

from typing import Any

from stage_samples import Small, rows

from tasks.credit.scores import ValuesParameters, values
from tasks.update.critic import CriticParameters, initial_critic
from turnwise.config.model_settings import LearnerParameters
from turnwise.data.scores import SCORES_FILE
from turnwise.data.trajectory_files import read_trajectories
from turnwise.store import default_store


def valued(small: Small) -> list[dict[str, Any]]:
    learner = LearnerParameters(compute=small.experiment.compute)
    critic = initial_critic.fn(
        CriticParameters(learner=learner, critic=small.experiment.critic, seed=1, iteration=0), policy=small.policy
    )
    parameters = ValuesParameters(learner=learner, micro_batch_tokens=1024)
    return rows(values.fn(parameters, critic=critic, rollout=small.rollout), SCORES_FILE)


def test_a_critic_that_has_learned_nothing_gives_every_reply_token_0(small: Small) -> None:
    episodes = read_trajectories(default_store().folder(small.rollout))
    found = valued(small)
    for row, episode in zip(found, episodes, strict=True):
        assert row["per_token"] == [0.0] * sum(len(turn.reply_tokens) for turn in episode.turns)
        assert row["at_end"] == 0.0
