"""Worked examples: training episodes of the oracle, in the agent's format, before a policy's own task."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from agent_samples import Hill
from hypothesis import given, settings
from hypothesis import strategies as st

from turnwise.agent.examples import ExampleTurn, FrameWithExamples, WorkedExample
from turnwise.agent.loop import make_episodes
from turnwise.agent.playing import PlayParameters, episode_config, play_examples
from turnwise.config.agent import Agent
from turnwise.config.schema import RetryOptions, WorldSection
from turnwise.config.world_checks import require_examples
from turnwise.errors import ConfigurationError
from turnwise.experiment import load
from turnwise.policy.tokenizer import ChatFrame
from turnwise.world import make_world

ROOT = Path(__file__).parents[2]
SEARCH = {"hops": [1], "turns": 4, "relations": ["currency"]}
AGENT = Agent(format="line", instruction=True, examples=2, maximum_reply_tokens=40, context_tokens=4000)


def play(agent: Agent = AGENT, name: str = "search", **parameters: Any) -> PlayParameters:
    section = WorldSection(name=name, parameters=parameters or SEARCH)
    return PlayParameters(
        world=section,
        agent=agent,
        patience=RetryOptions(world_seconds=60.0, world_retries=0, maximum_lost_share=0.0, world_delay=0),
    )


def examples(parameters: PlayParameters, tasks: int = 16) -> tuple[WorkedExample, ...]:
    world = make_world(parameters.world.name, parameters.world.parameters)
    return play_examples(parameters, world.tasks("train", tasks))


class Undemonstrated(Hill):
    """A world without an oracle."""

    baselines = ("random",)


def replies(example: WorkedExample) -> list[str]:
    return [turn.reply for turn in example.turns]


def test_examples_are_solved_training_tasks_in_the_agents_format_and_the_same_each_time() -> None:
    shown = examples(play())
    assert len(shown) == 2 and shown == examples(play())
    questions = {
        make_world("search", SEARCH).make(task, 0).reset().text
        for task in make_world("search", SEARCH).tasks("train", 16)
    }
    for example in shown:
        assert example.turns[0].observation in questions
        assert [reply.partition(":")[0] for reply in replies(example)] == ["search", "answer"]
        assert [turn.answers_call for turn in example.turns] == [False, True]
    tagged = examples(play(AGENT.changed(format="search")))
    assert all(reply.startswith("<think>") for example in tagged for reply in replies(example))


def test_no_example_is_of_a_validation_or_test_task() -> None:
    world = make_world("search", SEARCH)
    first = {example.turns[0].observation for example in examples(play())}
    for split in ("validation", "test"):
        assert not first & {world.make(task, 0).reset().text for task in world.tasks(split, 20)}


def test_an_episode_begins_with_the_examples_as_the_template_renders_a_conversation(frame: ChatFrame) -> None:
    parameters = play()
    shown = examples(parameters)
    rules = episode_config(parameters.changed(examples=shown), frame)
    (episode,) = make_episodes(rules, make_world("search", SEARCH).tasks("test", 1), 1, seed=0)
    episode.open()
    question = make_world("search", SEARCH).make(episode.task, 0).reset().text
    chat = [{"role": "system", "content": rules.instruction}]
    for turn in (turn for example in shown for turn in example.turns):
        chat += [{"role": "user", "content": turn.observation}, {"role": "assistant", "content": turn.reply}]
    chat.append({"role": "user", "content": question})
    rendered = frame.tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_dict=False)
    assert episode.context == list(rendered)


@settings(max_examples=20)
@given(st.lists(st.text(max_size=20), min_size=1, max_size=3), st.text(max_size=20))
def test_all_openings_share_the_tokens_of_the_examples(frame: ChatFrame, texts: list[str], other: str) -> None:
    example = WorkedExample(turns=tuple(ExampleTurn(observation=t, reply=t, answers_call=False) for t in texts))
    with_examples = FrameWithExamples(frame, [example])
    bare = with_examples.opening("Do.", "")
    told = with_examples.opening("Do.", other)
    longest = len(bare) - len(frame.continuation("", frame.reply(texts[-1])))
    assert told[:longest] == bare[:longest]


def test_what_examples_need_is_said_before_anything_is_computed() -> None:
    with pytest.raises(ConfigurationError, match=r"\b1\b.*TW-too-few-examples"):
        examples(play(), tasks=1)
    with pytest.raises(ConfigurationError, match=r"'hill'.*\b2\b.*TW-no-oracle"):
        require_examples(AGENT, Undemonstrated())
    overlay = {"agent.instruction": False, "agent.examples": 1}
    with pytest.raises(ConfigurationError, match="TW-conflicting-options"):
        load(ROOT / "params.yaml", [], overlay)
