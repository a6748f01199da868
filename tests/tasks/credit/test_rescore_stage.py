"""The stage `rescore`: what a credit rule asks of the policy that sampled a rollout."""

from __future__ import annotations

import pytest
import torch
from stage_samples import Small, rows
from transformers import AutoModelForCausalLM

from tasks.credit.scores import RescoreParameters, rescore
from turnwise.config.model_settings import LearnerParameters
from turnwise.data.scores import SCORES_FILE
from turnwise.data.trajectory_files import read_trajectories
from turnwise.store import default_store


def test_score_norms_are_those_of_the_policys_whole_distribution(small: Small) -> None:
    parameters = RescoreParameters(
        need="score_norms",
        learner=LearnerParameters(compute=small.experiment.compute),
        temperature=1.0,
        micro_batch_tokens=1024,
    )
    made = rescore.fn(parameters, policy=small.policy, rollout=small.rollout)
    model = AutoModelForCausalLM.from_pretrained(default_store().folder(small.policy))
    episodes = read_trajectories(default_store().folder(small.rollout))
    for row, episode in zip(rows(made, SCORES_FILE), episodes, strict=True):
        tokens: list[int] = []
        replied: list[int] = []
        for turn in episode.turns:
            tokens += turn.observation_tokens
            replied += range(len(tokens), len(tokens) + len(turn.reply_tokens))
            tokens += turn.reply_tokens
        with torch.no_grad():
            chances = model(torch.tensor([tokens])).logits[0].softmax(dim=-1)
        sampled = torch.nn.functional.one_hot(torch.tensor(tokens), chances.shape[-1])
        expected = [float(((sampled[place] - chances[place - 1]) ** 2).sum()) for place in replied]
        assert row["per_token"] == pytest.approx(expected, abs=1e-3)
