"""What a reply follows under each context policy, word by word, and that it is sure to fit."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from agent_samples import Hill, RecordingEngine, check_segments, form, improvised, play_with_engine, rules_for
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from turnwise.agent.context import SUMMARY_WORDS, make_context
from turnwise.agent.episode import Episode
from turnwise.agent.formats import ThinkAnswerFormat
from turnwise.agent.imitation import tokenized
from turnwise.agent.loop import episode_seed, make_episodes, play_scripted, roll_out
from turnwise.agent.modes import MODES, make_mode
from turnwise.agent.replay import Continuation, points
from turnwise.agent.scripted import NOTHING, scripted_summary
from turnwise.config.agent import ContextSection, ModeSection
from turnwise.data.trajectory import Ending, Trajectory, Turn, TurnKind
from turnwise.policy.tokenizer import ChatFrame
from turnwise.world import Limits

FORMAT = ThinkAnswerFormat()
WINDOW = ContextSection(policy="window", turns=2)
SUMMARY = ContextSection(policy="summary", every=2, summary_tokens=30)
THOUGHTS: dict[str, dict[str, int]] = {
    "plain": {},
    "plan": {"tokens": 24, "every": 2},
    "reflect": {"tokens": 24, "attempts": 2},
}
POLICIES = {"full": ContextSection(), "window": WINDOW, "summary": SUMMARY}
LONGEST = {TurnKind.ACT: 64}
LONG = Hill(100, Limits(turns=6, actions_per_turn=2))


def play(frame: ChatFrame, section: ContextSection, replies: list[str], **changes: Any) -> tuple[Trajectory, list[str]]:
    """An episode with these replies, and the text of the context that each followed."""
    world = changes.pop("world", LONG)
    rules = rules_for(world, frame, context=section, **changes)
    (episode,) = make_episodes(rules, world.tasks("train", 1), 1, seed=0)
    episode.open()
    contexts = []
    for reply in replies:
        assert not episode.over, "the episode ended before its last reply"
        contexts.append(readable(frame, episode))
        tokens = frame.reply(reply)
        episode.receive(reply, tokens, (-1.0,) * len(tokens), True)
        episode.settle()
    result = episode.result() if episode.over else None
    trajectory = result or Trajectory(episode.task, 0, 0, tuple(episode.turns), Ending.TURN_LIMIT, "")
    assert isinstance(trajectory, Trajectory)
    return trajectory, contexts


def readable(frame: ChatFrame, episode: Episode) -> str:
    """A context as text, one message per `[role] words`."""
    text = frame.tokenizer.decode(episode.context)
    for role in ("user", "assistant"):
        text = text.replace(f"<|im_start|>{role}\n", f"[{role}] ")
    return text.replace("<|im_end|>\n", " ").strip()


ACTIONS = ["up", "stay", "up", "stay"]
REPLIES = [form(action) for action in ACTIONS]


def said(frame: ChatFrame) -> list[str]:
    """What the hill says before each of the replies, and after the last."""
    trajectory, _ = play(frame, ContextSection(), REPLIES, world=Hill(100, Limits(turns=4)))
    return [*(turn.observation for turn in trajectory.turns), trajectory.final_observation]


def test_the_full_context_says_everything(frame: ChatFrame) -> None:
    trajectory, contexts = play(frame, ContextSection(), REPLIES[:2])
    opening, first, *_ = said(frame)
    assert contexts == [
        f"[user] {opening} [assistant]",
        f"[user] {opening} [assistant] {form('up')} [user] {first} [assistant]",
    ]
    assert [turn.opens_segment for turn in trajectory.turns] == [True, False]


def test_a_window_says_the_opening_and_the_last_turns(frame: ChatFrame) -> None:
    trajectory, contexts = play(frame, WINDOW, REPLIES)
    opening, first, second, third, _ = said(frame)
    assert contexts[2] == (
        f"[user] {opening} [assistant] {form('up')} [user] {first} [assistant] {form('stay')} [user] {second} "
        "[assistant]"
    )
    # Two turns are shown, the opening and what the world had said before them in one message; the first is left out.
    assert contexts[3] == (
        f"[user] {opening}\n{first} [assistant] {form('stay')} [user] {second} [assistant] {form('up')} [user] {third} "
        "[assistant]"
    )
    assert trajectory.segment_turns == (range(0, 3), range(3, 4))
    # What is shown again is context: each reply is trained once, in the segment in which it was sampled.
    assert [sorted({*sequence.turn_of_token} - {-1}) for sequence in trajectory.segments()] == [[0, 1, 2], [3]]


def test_a_window_without_room_shows_fewer_turns(frame: ChatFrame) -> None:
    _, contexts = play(frame, WINDOW, REPLIES, token_budget=100_000)
    trajectory, _ = play(frame, WINDOW, REPLIES)
    needed = len(trajectory.segments()[1].tokens) - len(trajectory.turns[3].reply_tokens) + 64
    assert play(frame, WINDOW, REPLIES, token_budget=needed)[1] == contexts
    _, fewer = play(frame, WINDOW, REPLIES, token_budget=needed - 1)
    opening, _, second, third, _ = said(frame)
    assert fewer[3] == f"[user] {opening}\n{second} [assistant] {form('up')} [user] {third} [assistant]"


def test_a_summary_is_a_turn_and_takes_the_place_of_those_before_it(frame: ChatFrame) -> None:
    summary = FORMAT.write_thought("I am at 1.")
    trajectory, contexts = play(frame, SUMMARY, [*REPLIES[:2], summary, *REPLIES[2:]])
    opening, first, second, third, _ = said(frame)
    assert contexts[2] == (
        f"[user] {opening} [assistant] {form('up')} [user] {first} [assistant] {form('stay')} [user] {SUMMARY_WORDS} "
        "[assistant]"
    )
    assert contexts[3] == f"[user] {opening}\nYour summary: I am at 1.\n{second} [assistant]"
    assert contexts[4] == f"{contexts[3]} {form('up')} [user] {third} [assistant]"
    assert [turn.kind.value for turn in trajectory.turns] == ["act", "act", "summary", "act", "act"]
    assert [turn.asked for turn in trajectory.turns] == ["", "", SUMMARY_WORDS, "", ""]
    assert [turn.observation for turn in trajectory.turns] == [opening, first, "", second, third]
    assert trajectory.segment_turns == (range(0, 3), range(3, 5))
    told = trajectory.turns[2]
    assert (told.thought, told.actions, told.invalid, told.state, dict(told.rewards)) == (
        "I am at 1.",
        (),
        None,
        None,
        {},
    )


def test_summaries_use_up_no_turn_of_the_limit(frame: ChatFrame) -> None:
    summary = FORMAT.write_thought("on my way")
    trajectory, _ = play(frame, SUMMARY, [*REPLIES[:2], summary, *REPLIES[2:]], world=Hill(100, Limits(turns=4)))
    assert trajectory.ending is Ending.TURN_LIMIT
    assert (trajectory.count(TurnKind.ACT), trajectory.count(TurnKind.SUMMARY)) == (4, 1)


def test_a_summary_that_cannot_be_read_leaves_the_one_before_it(frame: ChatFrame) -> None:
    good, bad = FORMAT.write_thought("at 1"), "I would rather not."
    trajectory, contexts = play(frame, SUMMARY, [*REPLIES[:2], good, *REPLIES[2:], bad, form("up")])
    assert contexts[-1].startswith(f"[user] {said(frame)[0]}\nYour summary: at 1\n")
    assert trajectory.turns[5].invalid is not None and trajectory.turns[5].rewards["invalid_turn"] == 1.0


def test_summaries_are_frozen_by_configuration(frame: ChatFrame) -> None:
    frozen = SUMMARY.model_copy(update={"train_summaries": False})
    trajectory, _ = play(frame, frozen, [*REPLIES[:2], FORMAT.write_thought("at 1"), form("up")])
    assert [turn.trained for turn in trajectory.turns] == [True, True, False, True]
    first, second = trajectory.segments()
    assert {*first.turn_of_token} == {-1, 0, 1} and {*second.turn_of_token} == {-1, 3}


def test_a_summary_comes_early_where_it_would_not_fit_later(frame: ChatFrame) -> None:
    summary = FORMAT.write_thought("at 1")
    late = SUMMARY.model_copy(update={"every": 100})
    trajectory, _ = play(frame, late, REPLIES)
    reserve = len(frame.continuation(SUMMARY_WORDS, ())) + 30
    (sequence,) = trajectory.segments()
    needed = len(sequence.tokens) - len(trajectory.turns[3].reply_tokens) + 64 + reserve
    assert play(frame, late, REPLIES, token_budget=needed)[0] == trajectory
    early, _ = play(frame, late, [*REPLIES[:3], summary, REPLIES[3]], token_budget=needed - 1)
    assert [turn.kind.value for turn in early.turns] == ["act", "act", "act", "summary", "act"]
    # Early enough: the longest reply, the question and the longest summary all fit.
    before_summary = early.segments()[0].tokens[: -len(early.turns[3].reply_tokens)]
    assert len(before_summary) + 30 <= needed - 1


# Budget and exact tokens, with an engine that says anything


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("budget", [230, 300, 420])
def test_no_reply_is_asked_for_that_might_not_fit(frame: ChatFrame, policy: str, budget: int) -> None:
    world = Hill(100, Limits(turns=9, actions_per_turn=2))
    played, engine = play_with_engine(
        world, frame, improvised(frame, 1), tasks=4, token_budget=budget, reply_tokens=30, context=POLICIES[policy]
    )
    assert max(len(context) for _, context in engine.submitted) + 30 <= budget
    endings = [trajectory.ending for trajectory in played.trajectories]
    if policy == "full":
        assert Ending.TOKEN_BUDGET in endings
    for trajectory in played.trajectories:
        given = [index for index, turn in enumerate(trajectory.turns) if "format" in turn.rewards]
        assert given == [len(trajectory.turns) - 1]


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(
    seed=st.integers(0, 10_000),
    section=st.one_of(
        st.builds(ContextSection, policy=st.just("window"), turns=st.integers(1, 4)),
        st.builds(
            ContextSection, policy=st.just("summary"), every=st.integers(1, 4), summary_tokens=st.integers(10, 40)
        ),
        st.just(ContextSection()),
    ),
    budget=st.integers(200, 700),
)
def test_every_reply_is_kept_after_the_context_in_which_it_was_sampled(
    frame: ChatFrame, seed: int, section: ContextSection, budget: int
) -> None:
    world = Hill(100, Limits(turns=8, actions_per_turn=2))
    played, engine = play_with_engine(
        world,
        frame,
        improvised(frame, seed),
        tasks=2,
        replicas=1,
        context=section,
        token_budget=budget,
        reply_tokens=30,
    )
    for trajectory in played.trajectories:
        check_segments(trajectory, engine.submitted, engine.replies, trajectory.group)


# Thoughts of earlier replies


def test_without_thoughts_each_turn_after_one_is_a_segment_and_shows_earlier_actions_alone(frame: ChatFrame) -> None:
    trajectory, contexts = play(frame, ContextSection(), [form("up"), "no form", form("stay")], thoughts="dropped")
    whole, _ = play(frame, ContextSection(), [form("up"), "no form", form("stay")])
    first, second, third = (turn.observation for turn in whole.turns)
    acted = form("up").removeprefix("<think> so</think>")
    assert contexts == [
        f"[user] {first} [assistant]",
        f"[user] {first} [assistant] {acted} [user] {second} [assistant]",
        f"[user] {first} [assistant] {acted} [user] {second} [assistant] no form [user] {third} [assistant]",
    ]
    assert trajectory.segment_turns == (range(1), range(1, 3)), "a reply without a thought changes no history"
    assert [turn.reply for turn in trajectory.turns] == [turn.reply for turn in whole.turns]


def test_without_thoughts_no_reply_is_asked_for_that_might_not_fit(frame: ChatFrame) -> None:
    replies, kept_free = [form("stay", thought="so " * 20)] * 6, 64
    whole, _ = play(frame, ContextSection(), replies, thoughts="dropped")
    lengths = [len(turns[0].observation_tokens) for turns in segments_of(whole)]
    assert len(lengths) == 6
    budget = lengths[3] + kept_free - 1
    shorter, _ = play(frame, ContextSection(), replies[:3], thoughts="dropped", token_budget=budget)
    assert shorter.ending is Ending.TOKEN_BUDGET
    longer, _ = play(frame, ContextSection(), replies[:4], thoughts="dropped", token_budget=budget + 1)
    assert len(longer.turns) == 4


def segments_of(trajectory: Trajectory) -> list[list[Turn]]:
    return [[trajectory.turns[turn] for turn in turns] for turns in trajectory.segment_turns]


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(seed=st.integers(0, 10_000), budget=st.integers(200, 700))
def test_without_thoughts_every_reply_is_kept_after_the_context_in_which_it_was_sampled(
    frame: ChatFrame, seed: int, budget: int
) -> None:
    world = Hill(100, Limits(turns=8, actions_per_turn=2))
    played, engine = play_with_engine(
        world,
        frame,
        improvised(frame, seed),
        tasks=2,
        replicas=1,
        thoughts="dropped",
        token_budget=budget,
        reply_tokens=30,
    )
    for trajectory in played.trajectories:
        check_segments(trajectory, engine.submitted, engine.replies, trajectory.group)


@pytest.mark.parametrize("budget", [100_000, 330])
def test_a_demonstration_without_thoughts_has_the_tokens_that_an_episode_would_give_it(
    frame: ChatFrame, budget: int
) -> None:
    world = Hill(100, Limits(turns=7))
    episodes = make_episodes(rules_for(world, thoughts="dropped"), world.tasks("train", 1), 1, seed=0)
    (scripted,) = play_scripted(episodes, FORMAT.write, lambda index, turn: "random", 3).trajectories
    context = make_context(ContextSection(), frame, None, budget, "dropped")
    said = tokenized(scripted, frame, FORMAT, context, LONGEST)
    replies = [turn.reply for turn in said.turns]
    lived, _ = play(frame, ContextSection(), replies, world=world, token_budget=budget, thoughts="dropped")
    assert [turn.observation_tokens for turn in said.turns] == [turn.observation_tokens for turn in lived.turns]
    assert said.segment_turns == lived.segment_turns and len(said.segment_turns) == len(said.turns) > 1


# Demonstrations


@pytest.mark.parametrize("budget", [100_000, 330])
@pytest.mark.parametrize("policy", POLICIES)
def test_a_demonstration_has_the_tokens_that_an_episode_would_give_it(
    frame: ChatFrame, policy: str, budget: int
) -> None:
    section = POLICIES[policy]
    world = Hill(100, Limits(turns=7))
    episodes = make_episodes(rules_for(world, context=section), world.tasks("train", 1), 1, seed=0)
    (scripted,) = play_scripted(episodes, FORMAT.write, lambda index, turn: "random", 3).trajectories
    said = tokenized(scripted, frame, FORMAT, make_context(section, frame, None, budget), LONGEST)
    replies = [turn.reply for turn in said.turns]
    lived, _ = play(frame, section, replies, world=world, token_budget=budget)
    assert [turn.observation_tokens for turn in said.turns] == [turn.observation_tokens for turn in lived.turns]
    assert said.segment_turns == lived.segment_turns
    assert [turn.kind for turn in said.turns] == [turn.kind for turn in lived.turns]
    if budget > 1000:
        assert [turn.reply for turn in scripted.turns] == replies


def test_a_scripted_summary_tells_what_was_played_and_what_the_world_said(frame: ChatFrame) -> None:
    trajectory, _ = play(frame, ContextSection(), REPLIES[:3])
    _, first, second, *_ = said(frame)
    whole = f"up -> {first}; stay -> {second}; up"
    assert scripted_summary(trajectory.turns, 100, ThinkAnswerFormat()) == whole
    # Words, digits and marks, and three for the format.
    pieces = len(re.findall(r"[a-zA-Z]+|\d|[^\w\s]", whole)) + 3
    assert scripted_summary(trajectory.turns, pieces, ThinkAnswerFormat()) == whole
    assert scripted_summary(trajectory.turns, pieces - 1, ThinkAnswerFormat()) == f"up; stay -> {second}; up"
    assert scripted_summary(trajectory.turns, 8, ThinkAnswerFormat()) == "up; stay; up"
    assert scripted_summary(trajectory.turns, 7, ThinkAnswerFormat()) == "stay; up"
    assert scripted_summary(trajectory.turns, 1, ThinkAnswerFormat()) == "up"
    assert scripted_summary([], 12, ThinkAnswerFormat()) == NOTHING
    unread = replace(trajectory.turns[0], actions=(), invalid="no form")
    assert scripted_summary([unread], 100, ThinkAnswerFormat()) == "a reply that could not be read"
    long = replace(trajectory.turns[1], observation="word " * 40)
    assert scripted_summary([trajectory.turns[0], long], 100, ThinkAnswerFormat()) == f"up -> {'word ' * 12}...; stay"


# Replay


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("policy", POLICIES)
def test_a_state_in_a_later_segment_is_entered_again_with_its_own_context(
    frame: ChatFrame, policy: str, mode: str
) -> None:
    world = Hill(100, Limits(turns=6))
    agent = {"context": POLICIES[policy], "mode": make_mode(ModeSection(name=mode, **THOUGHTS[mode]))}
    played, _ = play_with_engine(world, frame, improvised(frame, 3), tasks=1, replicas=1, **agent)
    (trajectory,) = played.trajectories
    assert (len(trajectory.segment_turns) > 1) == (policy != "full" or mode == "reflect")
    rules = rules_for(world, frame, **agent)
    found = points(trajectory, episode_seed(5, 0, 0))
    engine = RecordingEngine(improvised(frame, 4))
    again = roll_out([Continuation(rules, point, 0, 0) for point in found], engine, frame.decode)
    assert not again.lost
    assert [context for _, context in engine.submitted[: len(found)]] == [point.context for point in found]
    for point, continued in zip(found, again.trajectories, strict=True):
        assert [turn.trained for turn in continued.turns[: point.turn]] == [False] * point.turn
        segments = continued.segments(every_reply=True)
        (holding,) = (index for index, turns in enumerate(continued.segment_turns) if point.turn in turns)
        assert segments[holding].tokens[: len(point.context)] == point.context


# Giving up


def test_invalid_replies_in_a_row_end_an_episode_and_others_break_the_row(frame: ChatFrame) -> None:
    bad, illegal = "no form", form("fly")
    trajectory, _ = play(frame, ContextSection(), [bad, illegal, form("up"), illegal, bad], invalid_limit=3)
    assert len(trajectory.turns) == 5
    gave_up, _ = play(frame, ContextSection(), [form("up"), bad, illegal, bad], invalid_limit=3)
    assert gave_up.ending is Ending.INVALID_LIMIT and not gave_up.ending.truncated
    assert gave_up.turns[-1].rewards == {"invalid_turn": 1.0, "format": 0.5}


def test_a_summary_neither_counts_as_invalid_nor_breaks_the_row(frame: ChatFrame) -> None:
    bad = "no form"
    trajectory, _ = play(frame, SUMMARY, [bad, bad, bad, bad], invalid_limit=3)
    assert [turn.kind.value for turn in trajectory.turns] == ["act", "act", "summary", "act"]
    assert trajectory.ending is Ending.INVALID_LIMIT


# Configuration


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"policy": "window"}, "must have turns"),
        ({"policy": "summary", "every": 3}, "must have summary_tokens"),
        ({"policy": "full", "turns": 3}, "does not read turns"),
        ({"policy": "window", "turns": 3, "train_summaries": True}, "does not read train_summaries"),
    ],
)
def test_a_key_that_a_policy_lacks_or_does_not_read_is_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        ContextSection(**values)
