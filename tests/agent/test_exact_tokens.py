"""What is trained on is what was sampled, in the context it was sampled in: every format, context policy and mode.

One small policy has learned a little of all cases from demonstrations. The real engine samples, the real learner
scores: on the segments of the trajectories it must find the engine's log-probabilities again, whatever the policy says,
which differs from processor to processor. A few replies are given instead of sampled: so in every case contexts are
rewritten, attempts fail, and a reply of each kind is read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from agent_samples import check_segments

from turnwise.agent.context import make_context
from turnwise.agent.episode import Episode, EpisodeConfig
from turnwise.agent.formats import FORMATS, make_format
from turnwise.agent.host import RetryPolicy
from turnwise.agent.imitation import tokenized
from turnwise.agent.loop import make_episodes, play_scripted, roll_out
from turnwise.agent.modes import MODES, make_mode
from turnwise.config.agent import ContextSection, ModeSection
from turnwise.data.trajectory import TokenSequence, Trajectory, TurnKind
from turnwise.errors import ConfigurationError
from turnwise.policy.architecture import create_policy
from turnwise.policy.engines.contract import Engine, Reply, Sampling
from turnwise.policy.engines.resident import close_resident_engine, resident_engine
from turnwise.policy.learner.learner import Learner
from turnwise.policy.tokenizer import ChatFrame, train_tokenizer
from turnwise.world import World, make_world

pytestmark = pytest.mark.engine

BUDGET, LONGEST, TEMPERATURE = 640, 40, 0.5
REPLIES = {TurnKind.ACT: LONGEST, TurnKind.PLAN: 24, TurnKind.REFLECT: 24, TurnKind.SUMMARY: 32}
EXTRA = {"summary": {TurnKind.SUMMARY}, "plan": {TurnKind.PLAN}, "reflect": {TurnKind.REFLECT}}
"""What a context policy and a mode ask for in addition to acting."""
CONTEXTS = {
    "full": ContextSection(),
    "window": ContextSection(policy="window", turns=1),
    "summary": ContextSection(policy="summary", every=1, summary_tokens=32),
}
THOUGHTS = {"plain": {}, "plan": {"tokens": 24, "every": 2}, "reflect": {"tokens": 24, "attempts": 2}}
CASES = list(product(FORMATS, CONTEXTS, MODES))
EPISODES = 8
"""Of each case: two of each of four tasks."""


@cache
def world_for(form: str) -> World:
    """The first of two worlds that a format can express."""
    lake = make_world("frozen_lake", {"size": 3, "success_rate": 1.0, "turns": 4, "actions_per_turn": 1, "actions": 9})
    try:
        make_format(form, lake)
    except ConfigurationError:
        return make_world("search", {"hops": [1], "turns": 4, "passages": 1})
    return lake


def rules_of(form: str, context: str, mode: str, frame: ChatFrame | None) -> EpisodeConfig:
    world = world_for(form)
    return EpisodeConfig(
        world=world,
        format=make_format(form, world),
        limits=None,
        patience=RetryPolicy(),
        frame=frame,
        instruction=form,  # by its name alone: which of the forms is wanted
        token_budget=BUDGET,
        reply_tokens=LONGEST,
        context=CONTEXTS[context],
        mode=make_mode(ModeSection(name=mode, **THOUGHTS[mode])),
    )


def demonstrations(form: str, context: str, mode: str) -> list[Trajectory]:
    rules = rules_of(form, context, mode, None)
    episodes = make_episodes(rules, rules.world.tasks("train", 4), 1, seed=0)
    # At random on the lake, so that episodes fail; a random player of the other world answers at once.
    player = "oracle" if form == "search" else "random"
    return play_scripted(episodes, rules.format.write, lambda index, turn: player, 0).trajectories


@dataclass
class Player:
    """A policy that knows a little of every case."""

    folder: Path
    frame: ChatFrame
    learner: Learner


@pytest.fixture(scope="module")
def player(tmp_path_factory: pytest.TempPathFactory) -> Player:
    played = {case: demonstrations(*case) for case in CASES}
    texts = [
        text
        for trajectories in played.values()
        for trajectory in trajectories
        for turn in trajectory.turns
        for text in (turn.observation, turn.asked, turn.reply)
    ]
    tags = sorted({tag for form in FORMATS.values() for tag in form.tags})
    frame = ChatFrame(train_tokenizer(texts, 600, tags))
    sequences = []
    for case, trajectories in played.items():
        rules = rules_of(*case, frame)
        for trajectory in trajectories:
            fresh = make_context(rules.context, frame, rules.instruction, BUDGET)
            sequences += tokenized(trajectory, frame, rules.format, fresh, REPLIES).segments(every_reply=True)
    folder = tmp_path_factory.mktemp("player")
    create_policy(
        folder,
        vocabulary_size=len(frame.tokenizer),
        context_length=BUDGET,
        end_token=frame.end_tokens[0],
        pad_token=frame.tokenizer.pad_token_id,
        seed=0,
        hidden=64,
        layers=2,
        heads=2,
        key_value_heads=1,
        feed_forward=128,
        initial_deviation=0.08,
    )
    learner = Learner(folder, threads=1)
    draws = np.random.default_rng(0)
    for _ in range(150):
        batch = [sequences[index] for index in draws.integers(len(sequences), size=12)]
        learner.supervised_step(batch, learning_rate=1e-2, micro_batch_tokens=4096)
    taught = tmp_path_factory.mktemp("taught")
    learner.save(taught)
    return Player(taught, frame, learner)


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    pytest.importorskip("vllm", reason="vLLM is not installed")
    yield resident_engine("vllm", threads=1, context_length=BUDGET, maximum_episodes=len(CASES) * EPISODES)
    close_resident_engine()


UNREADABLE = "no form"


def given(episode: Episode, number: int) -> str | None:
    """The reply that an episode is given as its `number`-th of a kind, from 0; None: what the policy says.

    A task's first episode cannot be read while it acts in an attempt that is to fail, where its thoughts are short, so
    that the context has room for another; nor once in the last attempt, which so goes on. The second episode's first
    action is good.
    """
    form, kind = episode.rules.format, episode.ask.kind
    to_fail = episode.at_the_start.turns if episode.rules.mode.name == "reflect" else 0
    if kind is TurnKind.ACT and episode.replica == 0:
        return UNREADABLE if number <= to_fail else None
    if kind is TurnKind.ACT and number == 0:
        decision = episode.decide("oracle", np.random.default_rng(0))
        assert decision is not None
        return form.write(decision)
    if kind in (TurnKind.PLAN, TurnKind.REFLECT) and episode.replica == 0 and number < max(1, to_fail - 1):
        return form.write_thought("go on")
    return None


@dataclass
class Recorder:
    """The engine, with a note of every context that it was given and every reply that came of it, sampled or given."""

    engine: Engine
    player: Player
    episodes: Sequence[Episode]
    submitted: list[tuple[int, tuple[int, ...]]] = field(default_factory=list)
    replies: list[Reply] = field(default_factory=list)
    sampled: set[tuple[int, TurnKind]] = field(default_factory=set)
    """The kinds of reply that each episode sampled."""
    _asked: Counter[tuple[int, TurnKind]] = field(default_factory=Counter)
    _given: list[tuple[int, tuple[int, ...], tuple[int, ...]]] = field(default_factory=list)
    """Episode, context and tokens of each reply that is given at the next step."""

    @property
    def in_flight(self) -> int:
        return self.engine.in_flight + len(self._given)

    def submit(self, episode: int, context: Sequence[int], reply_tokens: int | None = None) -> None:
        self.submitted.append((episode, tuple(context)))
        kind = self.episodes[episode].ask.kind
        text = given(self.episodes[episode], self._asked[episode, kind])
        self._asked[episode, kind] += 1
        if text is not None:
            self._given.append((episode, tuple(context), self.player.frame.reply(text)))
            return
        self.sampled.add((episode, kind))
        self.engine.submit(episode, context, reply_tokens)

    def step(self) -> Sequence[Reply]:
        finished = [*self._given_replies(), *(self.engine.step() if self.engine.in_flight else ())]
        self._given.clear()
        self.replies += finished
        return sorted(finished, key=lambda reply: reply.episode)

    def _given_replies(self) -> list[Reply]:
        if not self._given:
            return []
        sequences = [
            TokenSequence(
                context + tokens, (-1,) * len(context) + (0,) * len(tokens), (0.0,) * (len(context) + len(tokens))
            )
            for _, context, tokens in self._given
        ]
        scored = self.player.learner.log_probabilities(sequences, TEMPERATURE, 4096)
        return [
            Reply(episode, tokens, tuple(row[len(context) :]), True)
            for (episode, context, tokens), row in zip(self._given, scored, strict=True)
        ]


@dataclass
class Played:
    """What came of the episodes of all cases, `EPISODES` for each, in order."""

    trajectories: Sequence[Trajectory]
    recorder: Recorder


@pytest.fixture(scope="module")
def played(player: Player, engine: Engine) -> Played:
    """All cases at once, since an engine's step costs much the same whatever it steps."""
    engine.load(player.folder, "taught")
    engine.begin(7, Sampling(temperature=TEMPERATURE, max_reply_tokens=LONGEST, end_tokens=player.frame.end_tokens))
    episodes = []
    for case in CASES:
        rules = rules_of(*case, player.frame)
        episodes += make_episodes(rules, rules.world.tasks("train", 8)[4:], EPISODES // 4, seed=1)
    recorder = Recorder(engine, player, episodes)
    result = roll_out(episodes, recorder, player.frame.decode)
    assert len(result.trajectories) == len(episodes) and not result.lost
    return Played(result.trajectories, recorder)


@pytest.mark.parametrize(("form", "context", "mode"), CASES)
def test_what_is_trained_on_is_what_was_sampled_in_its_context(
    form: str, context: str, mode: str, player: Player, played: Played
) -> None:
    first = CASES.index((form, context, mode)) * EPISODES
    of_case = range(first, first + EPISODES)
    trajectories, recorder = [played.trajectories[episode] for episode in of_case], played.recorder
    for episode, trajectory in zip(of_case, trajectories, strict=True):
        check_segments(trajectory, recorder.submitted, recorder.replies, episode)
        assert all(len(turn.reply_tokens) <= REPLIES[turn.kind] for turn in trajectory.turns)
    sequences = [sequence for trajectory in trajectories for sequence in trajectory.segments()]
    scored = player.learner.log_probabilities(sequences, TEMPERATURE, 4096)
    differences = [
        abs(found - sampled)
        for sequence, row in zip(sequences, scored, strict=True)
        for found, sampled, mask in zip(row, sequence.log_probabilities, sequence.mask, strict=True)
        if mask
    ]
    assert sum(differences) / len(differences) < 1e-5
    assert max(differences) < 1e-3
    # Else nothing of this would be proved: contexts were rewritten, and replies of all kinds sampled, given and read.
    attempts = sum(1 + len(trajectory.earlier_endings) for trajectory in trajectories)
    assert (len(sequences) > attempts) == (context != "full")
    assert (attempts > EPISODES) == (mode == "reflect")
    turns = [turn for trajectory in trajectories for turn in trajectory.turns]
    expected = {TurnKind.ACT} | EXTRA.get(context, set()) | EXTRA.get(mode, set())
    sampled = {kind for episode, kind in recorder.sampled if episode in of_case}
    assert {turn.kind for turn in turns} == sampled == expected
    assert {turn.kind for turn in turns if turn.invalid is None} >= expected - {TurnKind.SUMMARY}
