"""Every way to assign credit trains a small search agent."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from every_rule import CREDIT, experiment, require_trains, require_warm_up, trained
from transformers import AutoModelForCausalLM

from tasks.credit.scores import critic_sequences, read_scores
from tasks.playing import frame_of
from tasks.restoring import opened, trajectories_of
from turnwise.agent.formats import SearchFormat
from turnwise.agent.hindsight import spelled_answer
from turnwise.data.trajectory_files import read_advantages
from turnwise.policy.critic.critic import Critic
from turnwise.store import default_store
from turnwise.training_runs.state import play_parameters

pytestmark = [pytest.mark.engine, pytest.mark.chain, pytest.mark.usefixtures("rules_home")]


@pytest.mark.parametrize("rule", CREDIT)
def test_every_rule_trains(rule: str) -> None:
    require_trains("search", rule)


@pytest.mark.parametrize(
    ("rule", "scores", "number"), [("information-gain", "answer_scores", 0), ("trace", "start_answer_scores", -1)]
)
def test_the_right_answer_is_scored_as_the_model_by_itself_would(rule: str, scores: str, number: int) -> None:
    chosen = experiment("search", CREDIT[rule])
    prepared, iterations = trained(chosen)
    iteration = iterations[number]  # the policy of the first one is the warm start, which stays the model of `trace`
    found = read_scores(iteration.made[scores]).per_token
    folder = default_store().folder(prepared.warm_start)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    form, frame = SearchFormat(chosen.made_world.verbs), frame_of(prepared.tokenizer)
    for row, trajectory in zip(found.tolist()[:8], trajectories_of(iteration.rollout), strict=False):
        reply, spelling = spelled_answer(chosen.made_world.answer(trajectory.task), form, frame)
        context: tuple[int, ...] = ()
        for score, turn in zip(row, trajectory.turns, strict=True):
            context += turn.observation_tokens
            with torch.no_grad():
                logits = model(torch.tensor([[*context, *reply]])).logits[0, len(context) - 1 : -1]
            log_p = torch.log_softmax(logits / chosen.rollout.temperature, dim=-1)
            expected = sum(log_p[place, reply[place]].item() for place in spelling) / len(spelling)
            assert score == pytest.approx(expected, abs=1e-4)
            context += turn.reply_tokens


def test_a_privileged_critic_learns_from_episodes_with_the_right_answer_and_the_policy_never_reads_it() -> None:
    sees = experiment("search", {"credit.estimator": "gae", "critic.privileged": True, "critic.mini_batches": 1})
    (prepared, iterations), (_, blind) = trained(sees), trained(experiment("search", {"credit.estimator": "gae"}))
    assert iterations[0].rollout == blind[0].rollout  # the policy's episodes are the same
    last = iterations[-1]
    assert last.before.critic is not None
    shown, owners = critic_sequences(play_parameters(sees), last.rollout, prepared.tokenizer)
    trajectories = trajectories_of(last.rollout)
    assert owners.tolist() == list(range(len(trajectories)))
    text = frame_of(prepared.tokenizer).tokenizer.decode(list(shown[0].tokens))
    assert sees.made_world.answer(trajectories[0].task) in text

    judge, tokens = Critic.restore(opened(last.before.critic), threads=1), sees.critic.micro_batch_tokens
    found = read_scores(last.made["values"]).per_token.values
    assert found == pytest.approx(judge.values(shown, tokens).values, abs=1e-6)
    unseen, _ = critic_sequences(None, last.rollout, None)
    targets = read_advantages(default_store().folder(last.credit)).value_targets
    assert targets is not None
    loss = default_store().metrics(last.made["critic"])["value_loss"]  # of one step, by the critic as it was before
    assert loss == pytest.approx(0.5 * np.mean((found - targets.values) ** 2), rel=1e-5)
    assert loss != pytest.approx(0.5 * np.mean((judge.values(unseen, tokens).values - targets.values) ** 2), rel=1e-5)


def test_while_the_critic_warms_up_the_policy_stays() -> None:
    require_warm_up("search")
