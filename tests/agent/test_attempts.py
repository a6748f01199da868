"""Episodes in the modes `plan` and `reflect`: what is said and recorded, what counts, and what several attempts are."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from agent_samples import (
    CONTEXTS,
    THOUGHTFUL,
    Call,
    Disturbed,
    Hill,
    Planned,
    answer,
    answer_in_tokens,
    form,
    play_texts,
    play_with_engine,
    rules_for,
)

from turnwise.agent.episode import Episode
from turnwise.agent.formats import ThinkAnswerFormat
from turnwise.agent.host import RetryPolicy
from turnwise.agent.loop import episode_seed, make_episodes
from turnwise.agent.modes import Mode, PlanMode, ReflectMode
from turnwise.agent.replay import Continuation, Point
from turnwise.config.schema import RewardSection
from turnwise.credit.batch import weighted_rewards
from turnwise.data.metrics import episode_means, episode_value
from turnwise.data.trajectory import Ending, LostEpisode, Trajectory, TurnKind, trajectory_arrays
from turnwise.policy.tokenizer import ChatFrame
from turnwise.world import Limits

PLAN, REVISE = "Write a plan in one thought, without an action.", "Revise the plan in one thought, without an action."
LESSON = "Write in one thought, without an action, what went wrong and what to do instead."
AGAIN = "The attempt failed. Write in one thought, without an action, what to do in the next one."
ALONE = ThinkAnswerFormat().thought_form
PATIENT = RetryPolicy(seconds=60, retries=0)


def hill(turns: int = 3, top: int = 100) -> Hill:
    return Hill(top, Limits(turns, 2))


def thought(text: str) -> str:
    return ThinkAnswerFormat().write_thought(text)


def told(trajectory: Trajectory) -> list[tuple[int, str, str, str, str]]:
    """Attempt, kind, what was observed, what was asked and what was replied, turn by turn."""
    return [(turn.attempt, turn.kind.value, turn.observation, turn.asked, turn.reply) for turn in trajectory.turns]


def sketch(trajectory: Trajectory) -> str:
    """The kinds of the turns, a letter each."""
    return "".join(turn.kind.value[0] for turn in trajectory.turns)


def test_a_plan_comes_before_the_first_action_and_is_revised_when_it_failed() -> None:
    replies = [thought("up and up"), form("up"), form("fly"), thought("only up"), form("up")]
    trajectory = play_texts(hill(), *replies, mode=PlanMode(tokens=9))
    refused = "Legal: up, stay, jump, rest, peek. Height 1 after 2."
    assert told(trajectory) == [
        (0, "plan", "Task hill/train/0. Height 0 after 0.", PLAN, replies[0]),
        (0, "act", "", "Now act.", replies[1]),
        (0, "act", "Up. Height 1 after 1.", "", replies[2]),
        (0, "plan", refused, REVISE, replies[3]),
        (0, "act", "", "Now act.", replies[4]),
    ]
    assert [turn.thought for turn in trajectory.turns if turn.kind is TurnKind.PLAN] == ["up and up", "only up"]
    # Three turns were allowed, and three acted.
    assert trajectory.ending is Ending.TURN_LIMIT
    assert [dict(turn.rewards) for turn in trajectory.turns] == [
        {},
        {"climbed": 1.0},
        {"invalid_turn": 1.0},
        {},
        {"climbed": 2.0, "format": 1.0},
    ]
    assert [turn.state for turn in trajectory.turns] == [None, "0", "1", None, "1"]


def test_a_plan_that_cannot_be_read_is_told_its_form_and_acting_goes_on() -> None:
    trajectory = play_texts(hill(turns=1), form("up"), form("up"), mode=PlanMode(tokens=9))
    assert told(trajectory)[1] == (0, "act", ALONE, "Now act.", form("up"))
    assert [turn.invalid for turn in trajectory.turns] == [ALONE, None]
    # Half of the replies could be read, and an action in a plan is not played.
    assert trajectory.turns[0].actions == () and dict(trajectory.turns[0].rewards) == {"invalid_turn": 1.0}
    assert dict(trajectory.turns[1].rewards) == {"climbed": 1.0, "format": 0.5}


def failed_twice(mode: Mode, **changes: Any) -> Trajectory:
    """Two attempts of two turns: up and a fall, an unreadable reply, a lesson from it, and the end."""
    replies = [form("up"), form("jump"), thought("do not jump"), "?", thought("write well"), form("up")]
    return play_texts(hill(turns=2), *replies, mode=mode, **changes)


def test_a_failed_task_begins_again_with_the_same_seed_and_the_whole_limit_on_turns() -> None:
    trajectory = failed_twice(ReflectMode(tokens=9, attempts=2))
    start = "Task hill/train/0. Height 0 after 0."
    assert told(trajectory) == [
        (0, "act", start, "", form("up")),
        (0, "act", "Up. Height 1 after 1.", "", form("jump")),
        (0, "reflect", "You fell. Height 1 after 2.", AGAIN, thought("do not jump")),
        (1, "act", start, "", "?"),
        (1, "reflect", ThinkAnswerFormat().form, LESSON, thought("write well")),
        (1, "act", "", "Now act.", form("up")),
    ]
    assert trajectory.final_observation == "Up. Height 1 after 1."
    assert (trajectory.earlier_endings, trajectory.ending) == ((Ending.FAILURE,), Ending.TURN_LIMIT)
    assert [turn.opens_segment for turn in trajectory.turns] == [True, False, False, True, False, False]


def test_a_further_attempt_meets_the_same_noise_and_has_all_actions_again() -> None:
    climb, world = [form("up")] * 3, Hill(100, Limits(turns=9, actions=3))
    trajectory = play_texts(world, *climb, thought("."), *climb, mode=ReflectMode(tokens=9, attempts=2))
    assert (trajectory.earlier_endings, trajectory.ending) == ((Ending.ACTION_LIMIT,), Ending.ACTION_LIMIT)
    assert [turn.rewards.get("climbed") for turn in trajectory.turns] == [1.0, 1.0, 2.0, None, 1.0, 1.0, 2.0]


def test_outcomes_and_measures_are_of_the_last_attempt_and_what_is_spent_is_of_all() -> None:
    trajectory = failed_twice(ReflectMode(tokens=9, attempts=2))
    rewards = {
        "climbed": RewardSection(level="turn", weight=1.0),
        "invalid_turn": RewardSection(level="turn", weight=-0.1),
        "format": RewardSection(level="outcome", weight=0.6),
    }
    # Five of six replies could be read.
    of_turns, outcome = weighted_rewards(trajectory_arrays([trajectory]), rewards)
    assert (of_turns.tolist(), outcome) == ([[1.0, 0.0, 0.0, -0.1, 0.0, 1.0]], pytest.approx([0.5]))
    as_outcome = {"climbed": RewardSection(level="outcome", weight=1.0)}
    of_turns, outcome = weighted_rewards(trajectory_arrays([trajectory]), as_outcome)
    assert (of_turns.tolist(), outcome.tolist()) == ([[0.0] * 6], [1.0])
    values = {name: episode_value(trajectory, name) for name in ("climbed", "turns", "turns/reflect", "attempts")}
    assert values == {"climbed": 1.0, "turns": 4.0, "turns/reflect": 2.0, "attempts": 2.0}


def test_success_at_the_first_attempt_and_at_the_last_are_two_measures() -> None:
    mode = ReflectMode(tokens=9, attempts=3)
    low = hill(turns=1, top=1)
    at_once = play_texts(low, form("up"), mode=mode)
    later = play_texts(low, form("stay"), thought("up"), form("jump"), thought("up"), form("up"), mode=mode)
    never = play_texts(low, *[form("stay"), thought("?")] * 2, form("stay"), mode=mode)
    assert [each.success for each in (at_once, later, never)] == [True, True, False]
    assert [episode_value(each, "first_success") for each in (at_once, later, never)] == [1.0, 0.0, 0.0]
    assert later.earlier_endings == (Ending.TURN_LIMIT, Ending.FAILURE)
    assert sketch(later) == sketch(never) == "arara"
    means = episode_means([at_once, later, never])
    assert (means["success"], means["first_success"]) == (pytest.approx(2 / 3), pytest.approx(1 / 3))
    assert (means["attempts"], means["turns"]) == (pytest.approx(7 / 3), pytest.approx(7 / 3))
    assert not {"first_success", "attempts"} & episode_means([at_once]).keys()


@pytest.mark.parametrize("trained", [True, False])
def test_thoughts_are_trained_on_or_frozen(trained: bool) -> None:
    cases: list[tuple[Mode, list[str]]] = [
        (PlanMode(tokens=9, train_thoughts=trained), [thought("up"), "?", thought("write"), form("up")]),
        (ReflectMode(tokens=9, train_thoughts=trained), ["?", thought("write"), form("up")]),
    ]
    for mode, replies in cases:
        trajectory = play_texts(hill(turns=2), *replies, mode=mode)
        assert {turn.trained for turn in trajectory.turns if turn.kind is not TurnKind.ACT} == {trained}
        assert all(turn.trained for turn in trajectory.turns if turn.kind is TurnKind.ACT)


def test_a_world_that_is_lost_in_the_second_attempt_loses_the_episode() -> None:
    def break_the_second(call: Call) -> None:
        if call.method == "reset" and call.attempt == 2:
            raise ConnectionError("gone")

    world = Disturbed(hill(turns=1), break_the_second)
    (episode,) = make_episodes(
        rules_for(world, patience=PATIENT, mode=ReflectMode(tokens=9, attempts=2)), world.tasks("train", 1), 1, seed=0
    )
    episode.open()
    answer(episode, form("stay"))
    answer(episode, thought("up"))
    result = episode.result()
    assert episode.over and isinstance(result, LostEpisode) and "gone" in result.reason
    world.wait_until_closed()
    assert world.count("close") == world.count("reset") == 2


def test_every_environment_of_every_attempt_is_closed() -> None:
    world = Disturbed(hill(turns=1), lambda call: None)
    play_texts(world, *[form("stay"), thought("up")] * 2, form("up"), mode=ReflectMode(tokens=9, attempts=3))
    world.wait_until_closed()
    assert world.count("close") == world.count("reset") == 3


# With tokens


def writer(frame: ChatFrame, seed: int) -> Callable[[int], Planned]:
    """Replies of all kinds, whatever was asked for."""
    choice = random.Random(seed)
    texts = [thought("up then up"), form("up"), form("up", "up"), form("stay"), form("jump"), form("fly"), "?"]

    def plan(number: int) -> Planned:
        return Planned(frame.reply(choice.choice(texts)), choice.randint(1, 4))

    return plan


@pytest.mark.parametrize("mode", THOUGHTFUL)
@pytest.mark.parametrize("context", CONTEXTS)
def test_every_reply_follows_the_tokens_that_its_segment_says(frame: ChatFrame, mode: str, context: str) -> None:
    rules: dict[str, Any] = {"mode": THOUGHTFUL[mode], "context": CONTEXTS[context]}
    played, engine = play_with_engine(hill(turns=5, top=7), frame, writer(frame, 3), tasks=8, **rules)
    asked = [(episode, [list(context) for at, context in engine.submitted if at == episode]) for episode in range(16)]
    kinds = set()
    for (_, contexts), trajectory in zip(asked, played.trajectories, strict=True):
        found = []
        for turns in trajectory.segment_turns:
            tokens: list[int] = []
            for turn in (trajectory.turns[index] for index in turns):
                tokens += turn.observation_tokens
                found.append(list(tokens))
                tokens += turn.reply_tokens
                kinds.add(turn.kind)
        assert found == contexts
    assert len(kinds) == (3 if context == "summary" else 2)


@pytest.mark.parametrize("mode", THOUGHTFUL)
def test_the_same_replies_give_the_same_trajectories(frame: ChatFrame, mode: str) -> None:
    first, _ = play_with_engine(hill(), frame, writer(frame, 1), mode=THOUGHTFUL[mode])
    again, _ = play_with_engine(hill(), frame, writer(frame, 1), mode=THOUGHTFUL[mode])
    assert first.trajectories == again.trajectories


@pytest.mark.parametrize("mode", THOUGHTFUL)
def test_an_episode_can_be_continued_from_every_turn(frame: ChatFrame, mode: str) -> None:
    world, rules = hill(), rules_for(hill(), frame, mode=THOUGHTFUL[mode])
    played, _ = play_with_engine(world, frame, writer(frame, 2), tasks=4, mode=THOUGHTFUL[mode])
    for trajectory in played.trajectories:
        for number in range(len(trajectory.turns)):
            seed = episode_seed(5, trajectory.group, trajectory.replica)
            continuation = Continuation(rules, Point(trajectory, number, seed), trajectory.group, trajectory.replica)
            continuation.open()
            for turn in trajectory.turns[number:]:
                continuation.receive(turn.reply, turn.reply_tokens, turn.log_probabilities, True)
                continuation.settle()
            result = continuation.result()
            assert isinstance(result, Trajectory)
            assert [replace(turn, trained=True) for turn in result.turns] == list(trajectory.turns)
            assert result.earlier_endings == trajectory.earlier_endings


def open_episode(frame: ChatFrame, mode: Mode, budget: int) -> Episode:
    world = hill(turns=1)
    rules = rules_for(world, frame, mode=mode, token_budget=budget, reply_tokens=30)
    (episode,) = make_episodes(rules, world.tasks("train", 1), 1, seed=0)
    episode.open()
    return episode


def test_a_task_is_attempted_again_only_where_the_lesson_fits(frame: ChatFrame) -> None:
    mode = ReflectMode(tokens=17, attempts=2)
    whole = open_episode(frame, mode, 10_000)
    answer_in_tokens(whole, frame, form("stay"))
    assert whole.ask.kind is TurnKind.REFLECT and whole.ask.reply_tokens == 17
    enough = len(whole.context) + 17
    exact, short = open_episode(frame, mode, enough), open_episode(frame, mode, enough - 1)
    answer_in_tokens(exact, frame, form("stay"))
    answer_in_tokens(short, frame, form("stay"))
    assert not exact.over and short.over
    result = short.result()
    assert isinstance(result, Trajectory) and (result.ending, result.earlier_endings) == (Ending.TURN_LIMIT, ())
    assert result.turns[-1].rewards["format"] == 1.0


def test_a_new_attempt_opens_with_the_lessons(frame: ChatFrame) -> None:
    episode = open_episode(frame, ReflectMode(tokens=17, attempts=2), 10_000)
    answer_in_tokens(episode, frame, form("stay"))
    answer_in_tokens(episode, frame, thought("up, not <answer>stay"))
    text = frame.decode(tuple(episode.context))
    assert "Your lesson: up, not <\\answer>stay" in text and "Task hill/train/0. Height 0 after 0." in text
    assert "Still here." not in text and episode.remaining.turns == 1
