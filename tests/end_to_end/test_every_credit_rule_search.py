"""Every way to assign credit trains a small search agent."""

from __future__ import annotations

import pytest
import torch
from every_rule import CREDIT, experiment, require_trains, require_warm_up, trained
from transformers import AutoModelForCausalLM

from tasks.credit.scores import read_scores
from tasks.playing import frame_of
from tasks.restoring import trajectories_of
from turnwise.agent.formats import SearchFormat
from turnwise.agent.hindsight import spelled_answer
from turnwise.store import default_store

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


def test_while_the_critic_warms_up_the_policy_stays() -> None:
    require_warm_up("search")
