"""Stages with the format native-tools and a published chat template: what is imitated, and what a policy is shown."""

from __future__ import annotations

from typing import Any

import pytest
from stage_samples import Small, rollout_parameters

from tasks.prepare.imitation import sequences_to_imitate
from tasks.prepare.materials import DemonstrationParameters, PolicyParameters, demonstrations, initial_policy
from tasks.rollout.rollout import rollout
from tests.policy.chat_template_samples import tokenizer_of
from turnwise.agent.formats import NativeToolsFormat
from turnwise.agent.playing import PlayParameters, instruction_of
from turnwise.data.trajectory import Trajectory
from turnwise.data.trajectory_files import read_trajectories
from turnwise.policy.tokenizer import load_tokenizer
from turnwise.store import Reference, default_store

FORM = NativeToolsFormat()


@pytest.fixture
def play(small: Small) -> PlayParameters:
    changes = {"format": FORM.name, "instruction": True, "context_tokens": 2048, "maximum_reply_tokens": 24}
    return small.play.model_copy(update={"agent": small.experiment.agent.model_copy(update=changes)})


@pytest.fixture
def published(small: Small) -> Reference:
    """A tokenizer with the chat template of Qwen2.5."""
    with default_store().write("tokenizer") as draft:
        tokenizer_of("qwen2.5").save_pretrained(draft.folder)
    return draft.reference


def messages(trajectory: Trajectory, instruction: str) -> list[dict[str, Any]]:
    """The episode as a conversation."""
    found: list[dict[str, Any]] = [{"role": "system", "content": instruction}]
    for number, turn in enumerate(trajectory.turns):
        answers = number > 0 and trajectory.turns[number - 1].actions
        found.append({"role": "tool" if answers else "user", "content": turn.observation})
        found.append({"role": "assistant", "content": turn.reply})
    return found


def test_demonstrations_are_imitated_as_the_template_renders_calls_and_answers(
    small: Small, play: PlayParameters, published: Reference
) -> None:
    parameters = DemonstrationParameters(**dict(play), seed=0, count=3, noise=0.3)
    made = demonstrations.fn(parameters, task_set=small.task_sets["train"])
    tokenizer = load_tokenizer(default_store().folder(published))
    instruction = instruction_of(play.agent, small.experiment.made_world)
    assert instruction is not None
    imitated = sequences_to_imitate(play, published, made)
    recorded = read_trajectories(default_store().folder(made))
    assert any(len(trajectory.turns) > 1 for trajectory in recorded)
    for sequence, trajectory in zip(imitated, recorded, strict=True):
        whole = tokenizer.apply_chat_template(
            messages(trajectory, instruction), tools=FORM.functions.signatures, tokenize=False
        )
        assert tokenizer.decode(list(sequence.tokens)) + "\n" == whole


def test_a_policy_is_shown_the_functions_and_is_told_by_the_user_that_its_replies_cannot_be_read(
    small: Small, play: PlayParameters, published: Reference
) -> None:
    policy = initial_policy.fn(
        PolicyParameters.of(small.experiment.policy, None, play.agent.context_tokens), tokenizer=published
    )
    sampled = rollout.fn(
        rollout_parameters(play, small.experiment.compute, prompts=1),
        policy=policy,
        tokenizer=published,
        task_set=small.task_sets["train"],
    )
    tokenizer = load_tokenizer(default_store().folder(published))
    first, second, *_ = read_trajectories(default_store().folder(sampled))[0].turns
    assert '"name": "act"' in tokenizer.decode(list(first.observation_tokens))
    assert first.invalid is not None
    assert "<|im_start|>user\nThe reply" in tokenizer.decode(list(second.observation_tokens))
