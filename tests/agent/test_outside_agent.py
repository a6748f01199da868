"""Conversations of outside agents as trajectories: exact tokens where a context goes on, segments everywhere else."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

import numpy as np
import pytest
from transformers import PreTrainedTokenizerFast

from turnwise.agent.outside_agent import (
    ConversationFrame,
    RecordedEpisode,
    Recorder,
    Refused,
    answer_of,
    text_of,
    trajectories_of_episodes,
)
from turnwise.data.trajectory import trajectory_arrays
from turnwise.errors import ConfigurationError
from turnwise.policy.engines.contract import Reply
from turnwise.policy.tokenizer import train_tokenizer


@pytest.fixture(scope="module")
def frame() -> ConversationFrame:
    tokenizer: PreTrainedTokenizerFast = train_tokenizer(["look at the lake and go left", "now what"], 320, [])
    return ConversationFrame(tokenizer)


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def said(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


class Agent:
    """Asks in one episode, and is answered with the texts that are given, as if they had been sampled."""

    def __init__(self, frame: ConversationFrame) -> None:
        self.frame, self.episode = frame, RecordedEpisode("task", "1")

    def ask(self, messages: list[dict[str, Any]], answer: str, *, cut: bool = False) -> dict[str, Any]:
        context, parent, observation = self.episode.context(messages, self.frame)
        tokens = self.frame.reply(answer)[: -1 if cut else None]
        reply = Reply(0, tokens, (-0.5,) * len(tokens), not cut)
        answered = answer_of(answer, False, len(self.episode.calls))
        self.episode.add(messages, context, parent, observation, reply, answer, answered)
        return answered


def rendered(frame: ConversationFrame, messages: list[dict[str, Any]]) -> str:
    text: str = frame.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    return text


def spelled(frame: ConversationFrame, tokens: tuple[int, ...]) -> str:
    text: str = frame.tokenizer.decode(list(tokens), skip_special_tokens=False)
    return text


def test_a_conversation_that_goes_on_is_one_segment_whose_tokens_are_the_templates(frame: ConversationFrame) -> None:
    agent, messages = Agent(frame), [{"role": "system", "content": "go"}, user("look at the lake")]
    for answer, then in (("left", "now what"), ("right", "the end")):
        messages += [agent.ask(messages, answer), user(then)]
    trajectory = agent.episode.trajectory(0, 0)
    (sequence,) = trajectory.segments()
    assert spelled(frame, sequence.tokens) == rendered(frame, messages).rpartition("\n<|im_start|>user\nthe end")[0]
    assert [turn.opens_segment for turn in trajectory.turns] == [False, False]
    assert trajectory.turns[1].observation == "now what"


def test_a_reply_is_kept_as_it_was_sampled_and_not_as_its_text_would_be_tokenized(frame: ConversationFrame) -> None:
    agent = Agent(frame)
    letters = (*(token for letter in "left" for token in frame.reply(letter)[:-1]), frame.end_token)
    assert letters != frame.reply("left"), "the same text in other tokens"
    context, parent, observation = agent.episode.context([user("look")], frame)
    reply = Reply(0, letters, (-1.0,) * len(letters), True)
    agent.episode.add([user("look")], context, parent, observation, reply, "left", said("left"))
    after, parent, _ = agent.episode.context([user("look"), said("left"), user("now")], frame)
    assert parent == 0 and after[: len(context) + len(letters)] == (*context, *letters)


def test_a_reply_that_was_cut_off_is_closed_as_the_template_closes_it(frame: ConversationFrame) -> None:
    agent = Agent(frame)
    messages = [user("look"), agent.ask([user("look")], "left", cut=True), user("now")]
    agent.ask(messages, "right")
    (sequence,) = agent.episode.trajectory(0, 0).segments()
    assert spelled(frame, sequence.tokens) == rendered(frame, messages) + "right<|im_end|>"
    assert sequence.mask.count(1) == len(frame.reply("left")) - 1 + len(frame.reply("right"))


def test_two_agents_a_fork_and_a_rewritten_history_open_segments_after_exactly_their_own_contexts(
    frame: ConversationFrame,
) -> None:
    agent = Agent(frame)
    one, other = [user("look at the lake")], [user("judge the lake")]
    one = [*one, agent.ask(one, "left"), user("now what")]
    other = [*other, agent.ask(other, "good"), user("why")]  # another agent
    contexts = [one[:1], other[:1], one, other]
    one_answer = agent.ask(one, "right")
    agent.ask(other, "for it is")
    fork = [*one[:2], user("what else")]  # the first agent again, from before its second question
    agent.ask(fork, "down")
    rewritten = [user("look at the lake"), said("I went left"), user("now what")]
    agent.ask(rewritten, "up")
    further = [*one, one_answer, user("and then")]
    agent.ask(further, "stop")
    trajectory = agent.episode.trajectory(0, 0)
    assert [turn.opens_segment for turn in trajectory.turns] == [False, True, True, True, True, True, True]
    sequences = trajectory.segments()
    for sequence, messages in zip(sequences, [*contexts, fork, rewritten, further], strict=True):
        before = tuple(token for token, is_reply in zip(sequence.tokens, sequence.mask, strict=True) if not is_reply)
        assert spelled(frame, before) == rendered(frame, messages)
    arrays = trajectory_arrays([trajectory])
    assert np.array_equal(np.bincount(arrays.segments()[1]), [7])


def test_messages_cannot_become_control_tokens(frame: ConversationFrame) -> None:
    context, _, _ = RecordedEpisode("g", "e").context([user("a<|im_end|>b")], frame)
    plain, _, _ = RecordedEpisode("g", "e").context([user("ab")], frame)
    assert context.count(frame.end_token) == plain.count(frame.end_token)


def test_calls_are_read_for_an_agent_with_tools_and_are_the_same_text_when_it_sends_them_back() -> None:
    text = 'I look. <tool_call>\n{"name": "look", "arguments": {"at": "lake"}}\n</tool_call>'
    answer = answer_of(text, True, 3)
    (call,) = answer["tool_calls"]
    assert (answer["content"], call["id"], call["function"]["name"]) == ("I look.", "call_3_0", "look")
    assert call["function"]["arguments"] == '{"at": "lake"}'
    assert text_of(answer) == text.replace("I look. ", "I look.\n")
    assert answer_of(text, False, 3) == said(text)
    with pytest.raises(ConfigurationError, match=r"'image_url'.*TW-message-not-text"):
        text_of({"role": "user", "content": [{"type": "image_url"}]})


@pytest.mark.parametrize(
    "call",
    [
        "{look}",
        r'{"name": "look", "arguments": {"at": "\ud800"}}',
        '{"name": "look", "arguments": {"at": ' + "[" * 100_000 + "}}",
        '{"name": {"look": 1}, "arguments": {}}',
    ],
)
def test_a_call_that_is_none_or_cannot_be_sent_is_answered_as_the_text_it_is(call: str) -> None:
    unread = f"<tool_call>\n{call}\n</tool_call>"
    assert answer_of(unread, True, 0) == said(unread)


def test_rewards_stand_at_their_turns_and_an_episode_without_one_is_lost_and_never_0(frame: ConversationFrame) -> None:
    episodes = []
    for group, rewards in (("b", {"solved": 1.0}), ("a", None), ("b", {"solved": 0.0})):
        agent = Agent(frame)
        agent.episode.group, agent.episode.rewards = group, rewards
        messages = [user("look")]
        messages += [agent.ask(messages, "left"), user("now")]
        agent.ask(messages, "right")
        episodes.append(agent.episode)
    episodes[0].turn_rewards = [{"tool": 0.5}, {"tool": 0.25}]
    kept, lost = trajectories_of_episodes(episodes)
    assert [(each.group, each.replica) for each in kept] == [(0, 0), (0, 1)]
    assert [dict(turn.rewards) for turn in kept[0].turns] == [{"tool": 0.5}, {"tool": 0.25, "solved": 1.0}]
    assert [dict(turn.rewards) for turn in kept[1].turns] == [{}, {"solved": 0.0}]
    assert [(each.group, each.reason) for each in lost] == [(1, "no reward was posted")]


class Engine:
    """Replies with `left` and a number, and lets a test do something while a reply is sampled."""

    def __init__(self, frame: ConversationFrame) -> None:
        self.frame, self.meanwhile = frame, lambda: None

    def sample(self, context: tuple[int, ...], reply_tokens: int | None) -> Future[Reply]:
        self.meanwhile()
        tokens = self.frame.reply("left")
        replied: Future[Reply] = Future()
        replied.set_result(Reply(0, tokens, (-0.5,) * len(tokens), True))
        return replied


def recorder(frame: ConversationFrame, write: Callable[[Sequence[RecordedEpisode]], dict[str, Any]]) -> Recorder:
    return Recorder(Engine(frame), lambda tools: frame, 1.0, write, "policy")  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", [0, -1, 2.5, "5", True, [5]])
def test_a_limit_that_is_no_number_of_tokens_is_refused_and_reaches_no_engine(
    frame: ConversationFrame, wrong: object
) -> None:
    asked = {"messages": [user("look")], "max_completion_tokens": None, "max_tokens": wrong}
    with pytest.raises(Refused, match="must be a whole number above 0"):
        recorder(frame, lambda episodes: {}).complete("task", "1", asked)


@pytest.mark.parametrize(
    ("posted", "said"),
    [
        ({"reward": 1.0, "rewards": {"speed": 0.5}}, "reward or rewards; found both"),
        ({"rewards": 1.0}, "numbers by name"),
        ({"rewards": [["speed", 0.5]]}, "numbers by name"),
        ({"turns": [0.5]}, "a list of such"),
        ({"turns": {"tool": 0.5}}, "a list of such"),
    ],
)
def test_a_reward_that_would_be_read_in_part_or_not_at_all_is_refused(
    frame: ConversationFrame, posted: dict[str, Any], said: str
) -> None:
    of_agent = recorder(frame, lambda episodes: {})
    of_agent.complete("task", "1", {"messages": [user("look")]})
    with pytest.raises(Refused, match=said):
        of_agent.reward("task", "1", posted)
    assert of_agent.status["rewarded"] == 0


def test_episodes_that_cannot_be_written_stay(frame: ConversationFrame) -> None:
    written: list[Sequence[RecordedEpisode]] = []

    def write(episodes: Sequence[RecordedEpisode]) -> dict[str, Any]:
        written.append(episodes)
        if len(written) == 1:
            raise OSError("the disk is full")
        return {"episodes": len(episodes)}

    of_agent = recorder(frame, write)
    of_agent.complete("task", "1", {"messages": [user("look")]})
    of_agent.reward("task", "1", {"reward": 1.0})
    with pytest.raises(OSError, match="full"):
        of_agent.write()
    assert of_agent.write() == {"episodes": 1}
    assert of_agent.status["episodes"] == 0
