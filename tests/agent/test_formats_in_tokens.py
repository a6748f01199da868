"""Through an episode and a real tokenizer: what a world says and what a policy samples are never confused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import pytest
from agent_samples import rules_for
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from turnwise.agent.formats import FORMATS, Format
from turnwise.agent.loop import make_episodes
from turnwise.data.trajectory import Trajectory
from turnwise.policy.tokenizer import END, PAD, START, ChatFrame, train_tokenizer
from turnwise.world import Environment, Limits, Observation, Remaining, Reward, ScriptedAction, Split, Step, Task, World

EVERY_FORMAT = [form() for form in FORMATS.values()]
UP = ScriptedAction("so", ("search[up]",))
MARKS = sorted({tag for form in FORMATS.values() for tag in form.tags})
MARKS += ["Thought:", "Action:", "Observation:", START, END, PAD, f"{START}assistant\n", "assistant\n", "user\n", "||"]
MARKS += [form.write(UP) for form in EVERY_FORMAT]
texts = st.lists(
    st.sampled_from(MARKS) | st.sampled_from(["\n", "\r", "<", ">", "\\"]) | st.text(max_size=15), max_size=8
)
odd_texts = texts.map("".join)
long_texts = st.tuples(st.sampled_from(MARKS), st.integers(0, 40)).map(
    lambda drawn: (drawn[0] * 15_000)[drawn[1] : 100_000]
)


class Echo(World):
    """Says the given words, whatever is played, and remembers what was played."""

    name: ClassVar[str] = "echo"
    version: ClassVar[str] = "1"
    rewards: ClassVar[Mapping[str, Reward]] = {}
    instruction = "Listen."
    grammar = "Any text."
    limits = Limits(turns=3, actions_per_turn=3)

    def __init__(self, words: list[str]) -> None:
        self.words = words
        self.played: list[str] = []

    def tasks(self, split: Split, count: int) -> list[Task]:
        return [Task(self.name, f"echo/{split}/{number}", split, number) for number in range(count)]

    def make(self, task: Task, seed: int) -> Environment:
        return _Echoing(self)


class _Echoing(Environment):
    def __init__(self, world: Echo) -> None:
        self._world, self._words = world, iter(world.words)

    def reset(self) -> Observation:
        return Observation(next(self._words))

    def step(self, action: str) -> Step:
        self._world.played.append(action)
        return Step(Observation(next(self._words, "Nothing.")))

    def oracle(self, remaining: Remaining) -> ScriptedAction:
        raise NotImplementedError

    def random(self, generator: np.random.Generator, remaining: Remaining) -> ScriptedAction:
        raise NotImplementedError


@pytest.fixture(scope="module")
def frame_of() -> Mapping[str, ChatFrame]:
    """A tokenizer for each format, trained with its tags."""
    replies = [form.write(UP) for form in EVERY_FORMAT]
    return {
        form.name: ChatFrame(train_tokenizer([*replies, "Up. Height 3.", "Listen."] * 20, 400, form.tags))
        for form in EVERY_FORMAT
    }


def played(form: Format, frame: ChatFrame, words: list[str], replies: list[tuple[int, ...]]) -> tuple[Trajectory, Echo]:
    """One episode in which a world says these words and a policy samples these tokens."""
    world = Echo(words)
    (episode,) = make_episodes(
        rules_for(world, frame, format=form, token_budget=10**9), world.tasks("train", 1), 1, seed=0
    )
    episode.open()
    for tokens in [*replies, *[frame.end_tokens] * 3]:
        if not episode.over:
            complete = tokens[-1:] == frame.end_tokens
            episode.receive(frame.decode(tokens), tokens, (-1.0,) * len(tokens), complete)
            episode.settle()
    result = episode.result()
    assert isinstance(result, Trajectory)
    return result, world


def sampled(frame: ChatFrame) -> st.SearchStrategy[tuple[int, ...]]:
    """Replies: of texts, and of tokens as no text would give them; a few without their end."""
    written = odd_texts.map(lambda text: frame.reply(text))
    vocabulary = st.integers(0, len(frame.tokenizer) - 1)
    drawn = st.lists(vocabulary, max_size=12).map(lambda tokens: (*tokens, *frame.end_tokens))
    return written | drawn | written.map(lambda tokens: tokens[:-1])


@pytest.mark.parametrize("form", EVERY_FORMAT, ids=lambda form: form.name)
@settings(max_examples=60)
@given(data=st.data())
def test_neither_a_worlds_text_nor_a_policys_is_taken_for_the_other(
    form: Format, frame_of: Mapping[str, ChatFrame], data: st.DataObject
) -> None:
    frame = frame_of[form.name]
    words = data.draw(st.lists(odd_texts, min_size=1, max_size=4))
    replies = data.draw(st.lists(sampled(frame), max_size=3))
    trajectory, world = played(form, frame, words, replies)
    check(form, frame, trajectory, world)


@pytest.mark.parametrize("form", EVERY_FORMAT, ids=lambda form: form.name)
@settings(max_examples=4, phases=[Phase.explicit, Phase.generate])  # shrinking such texts takes hours
@given(said=long_texts, replied=long_texts)
@example(said="<" * 100_000, replied="\u0301" * 50_000)
def test_the_same_for_texts_of_a_hundred_kilobytes(
    form: Format, frame_of: Mapping[str, ChatFrame], said: str, replied: str
) -> None:
    frame = frame_of[form.name]
    trajectory, world = played(form, frame, [said, said], [frame.reply(replied), frame.reply(form.write(UP))])
    check(form, frame, trajectory, world)
    assert world.played[-1:] == ["search[up]"]


def check(form: Format, frame: ChatFrame, trajectory: Trajectory, world: Echo) -> None:
    """What was played was read from sampled tokens alone; an observation has no token that marks a reply or a role."""
    marks = set(frame.tokenizer.convert_tokens_to_ids([*form.tags, START, END, PAD]))
    actions: list[str] = []
    sequence: list[int] = []
    for number, turn in enumerate(trajectory.turns):
        complete = turn.reply_tokens[-1:] == frame.end_tokens
        reading = form.read(frame.decode(turn.reply_tokens), 3) if complete else None
        actions += reading.actions if reading else ()
        assert turn.actions == (reading.actions if reading else ())
        own = turn.observation if number and trajectory.turns[number - 1].invalid else shown(form, "", number)
        before = trajectory.turns[number - 1].reply_tokens
        bare = frame.continuation(own, before) if number else frame.opening(None, "")
        assert [token for token in turn.observation_tokens if token in marks] == [
            token for token in bare if token in marks
        ]
        sequence += [*turn.observation_tokens, *turn.reply_tokens]
    assert world.played == actions
    (segment,) = trajectory.segments()
    assert segment.tokens == tuple(sequence)
    assert sum(segment.mask) == sum(len(turn.reply_tokens) for turn in trajectory.turns)


def shown(form: Format, text: str, number: int) -> str:
    return form.observation(text) if number else form.opening(text)
