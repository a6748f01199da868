"""The rules of an episode: how it ends, what a turn records, and how an invalid reply is answered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from agent_samples import LEGAL, Climb, Disturbed, Hill, answer, form, play_texts, rules_for

from turnwise.agent.episode import Episode
from turnwise.agent.formats import SearchFormat, ThinkAnswerFormat
from turnwise.agent.loop import make_episodes
from turnwise.config.agent import AGENT_REWARDS
from turnwise.data.trajectory import Ending, LostEpisode, Trajectory
from turnwise.policy.tokenizer import ChatFrame
from turnwise.world import Environment, Limits, Observation, Remaining, Step, Task, World

FORM = ThinkAnswerFormat().form
GARBAGE = "I would rather not say."


def hill(turns: int = 4, actions_per_turn: int = 2, actions: int | None = None, top: int = 100) -> Hill:
    return Hill(top, Limits(turns, actions_per_turn, actions))


def one_episode(world: World, **changes: Any) -> Episode:
    (episode,) = make_episodes(rules_for(world, **changes), world.tasks("train", 1), 1, seed=0)
    episode.open()
    return episode


def rewards_of(trajectory: Trajectory, name: str) -> list[float | None]:
    return [turn.rewards.get(name) for turn in trajectory.turns]


# Endings

ENDINGS = {
    # One stride is of 1 or 2, so a hill of height 1 is climbed by one.
    "success": (hill(top=1), [form("up")], Ending.SUCCESS),
    "success in the last turn allowed": (hill(turns=1, top=1), [form("up")], Ending.SUCCESS),
    "success with the last action allowed": (hill(actions=1, top=1), [form("up")], Ending.SUCCESS),
    "failure": (hill(), [form("jump")], Ending.FAILURE),
    "failure in the last turn allowed": (hill(turns=1), [form("jump")], Ending.FAILURE),
    "failure with the last action allowed": (hill(actions=1), [form("jump")], Ending.FAILURE),
    "turns": (hill(turns=2), [form("up"), form("up")], Ending.TURN_LIMIT),
    "turns, all of them unreadable": (hill(turns=2), [GARBAGE, GARBAGE], Ending.TURN_LIMIT),
    "turns, with every action played and no limit on them": (
        hill(turns=2, actions_per_turn=2),
        [form("up", "up"), form("up", "up")],
        Ending.TURN_LIMIT,
    ),
    "actions": (hill(actions=3), [form("up", "up"), form("up")], Ending.ACTION_LIMIT),
    "actions, illegal ones included": (hill(actions=2), [form("fly"), form("fly")], Ending.ACTION_LIMIT),
    "actions and turns at once": (hill(turns=1, actions=1), [form("up")], Ending.ACTION_LIMIT),
    "a limit of the world's own": (hill(), [form("rest")], Ending.ACTION_LIMIT),
    "turns, when the task is solved": (hill(turns=1), [form("peek")], Ending.SUCCESS),
    "turns, when the task was solved and an unreadable reply followed": (
        hill(turns=2),
        [form("peek"), GARBAGE],
        Ending.SUCCESS,
    ),
    "actions, when the task is solved": (hill(actions=1), [form("peek")], Ending.SUCCESS),
    "turns, when the task was solved and is no longer": (hill(turns=2), [form("peek"), form("up")], Ending.TURN_LIMIT),
}


@pytest.mark.parametrize(("world", "replies", "ending"), ENDINGS.values(), ids=ENDINGS.keys())
def test_an_episode_ends_by(world: Hill, replies: list[str], ending: Ending) -> None:
    trajectory = play_texts(world, *replies)
    assert trajectory.ending is ending
    assert trajectory.success == (ending is Ending.SUCCESS)
    assert ending.truncated == (ending not in (Ending.SUCCESS, Ending.FAILURE))
    assert [turn.reply for turn in trajectory.turns] == replies


@pytest.mark.parametrize(("world", "replies", "ending"), ENDINGS.values(), ids=ENDINGS.keys())
def test_the_format_reward_is_given_once_with_the_last_turn(world: Hill, replies: list[str], ending: Ending) -> None:
    readable = [reply != GARBAGE for reply in replies]
    expected = [None] * (len(replies) - 1) + [sum(readable) / len(readable)]
    assert rewards_of(play_texts(world, *replies), "format") == expected


def test_the_format_reward_is_the_share_of_replies_that_could_be_read() -> None:
    # Readable: "up" and the illegal "fly". Unreadable: the garbage, and three actions where two are allowed.
    trajectory = play_texts(hill(turns=4), form("up"), GARBAGE, form("fly"), form("up", "up", "up"))
    assert rewards_of(trajectory, "format") == [None, None, None, 0.5]
    assert rewards_of(trajectory, "invalid_turn") == [None, 1.0, 1.0, 1.0]


def test_the_agents_rewards_are_declared_with_the_level_at_which_they_are_given() -> None:
    assert {name: reward.level for name, reward in AGENT_REWARDS.items()} == {
        "format": "outcome",
        "invalid_turn": "turn",
        "tags": "outcome",
        "unfinished": "outcome",
    }


@pytest.mark.parametrize(("world", "replies", "ending"), ENDINGS.values(), ids=ENDINGS.keys())
def test_an_episode_that_a_limit_ended_is_unfinished_where_that_is_asked_for(
    world: Hill, replies: list[str], ending: Ending
) -> None:
    trajectory = play_texts(world, *replies, further_rewards=("unfinished",))
    is_finished = ending in (Ending.SUCCESS, Ending.FAILURE)
    assert rewards_of(trajectory, "unfinished") == [None] * (len(replies) - 1) + [0.0 if is_finished else 1.0]


def test_an_agent_that_gives_up_has_not_finished() -> None:
    trajectory = play_texts(hill(), GARBAGE, GARBAGE, invalid_limit=2, further_rewards=("unfinished",))
    assert trajectory.ending is Ending.INVALID_LIMIT
    assert trajectory.turns[-1].rewards["unfinished"] == 1.0


def test_the_reward_for_tags_is_the_mean_over_the_replies() -> None:
    # Each tag once: 1. No tag: 0. An answer that is opened twice: (1 + 1 + 0 + 1) / 4.
    replies = [form("up"), GARBAGE, f"<answer>{form('up')}"]
    trajectory = play_texts(hill(turns=3), *replies, further_rewards=("tags",))
    assert rewards_of(trajectory, "tags") == [None, None, pytest.approx((1.0 + 0.0 + 0.75) / 3)]


def test_rewards_that_nobody_asks_for_are_not_recorded() -> None:
    rewards = [turn.rewards for turn in play_texts(hill(turns=2), form("up"), GARBAGE).turns]
    assert not {"tags", "unfinished"} & {name for each in rewards for name in each}


# RAGEN's frame, and its rule for surplus actions


def shown(world: World, *replies: str, **changes: Any) -> list[str]:
    """The observations before each reply, and the last one."""
    trajectory = play_texts(world, *replies, **changes)
    return [*(turn.observation for turn in trajectory.turns), trajectory.final_observation]


def test_a_turn_frame_says_the_turn_the_actions_left_and_the_last_reward() -> None:
    replies = [form("up", "up"), GARBAGE, form("up"), form("up")]
    plain = shown(hill(actions=6), *replies)
    paid = [sum(turn.rewards.get(name, 0.0) for name in Hill.rewards) for turn in play_texts(hill(), *replies).turns]
    framed = shown(hill(actions=6), *replies, turn_frame=True)
    assert framed == [
        f"Turn 1:\n{plain[0]}\nYou have 6 actions left.",
        f"Reward: {paid[0]:g}\nTurn 2:\n{plain[1]}\nYou have 4 actions left.",
        f"Reward: 0\nTurn 3:\n{plain[2]}\nYou have 4 actions left.",
        f"Reward: {paid[2]:g}\nTurn 4:\n{plain[3]}\nYou have 3 actions left.",
        plain[4],
    ]
    assert plain[2] == FORM and paid[0] > 0


def test_surplus_actions_are_refused_or_dropped() -> None:
    too_many = form("up", "up", "up")
    refused, dropped = (
        play_texts(hill(turns=1), too_many, drop_surplus_actions=drop).turns[0] for drop in (False, True)
    )
    assert refused.actions == () and refused.invalid is not None and refused.rewards["invalid_turn"] == 1.0
    assert dropped.actions == ("up", "up") and dropped.invalid is None and "invalid_turn" not in dropped.rewards
    assert dropped.reply == too_many, "the reply stays as it was sampled"
    (unreadable,) = play_texts(hill(turns=1), GARBAGE, drop_surplus_actions=True).turns
    assert unreadable.invalid == FORM


# Token budget

REPLY = 40
"""The maximum length of a reply in the tests of the budget."""


def play_tokens(frame: ChatFrame, world: Hill, replies: list[str], budget: int) -> Trajectory | LostEpisode:
    episode = one_episode(world, frame=frame, token_budget=budget, reply_tokens=REPLY)
    for reply in replies:
        if not episode.over:
            tokens = frame.reply(reply)
            episode.receive(reply, tokens, (-1.0,) * len(tokens), True)
            episode.settle()
    return episode.result()


@pytest.mark.parametrize("middle", [form("stay"), GARBAGE])
def test_an_episode_ends_when_the_next_reply_might_not_fit(frame: ChatFrame, middle: str) -> None:
    replies = [form("up"), middle, form("up")]
    whole = play_tokens(frame, hill(turns=3), replies, budget=10_000)
    assert isinstance(whole, Trajectory) and whole.ending is Ending.TURN_LIMIT
    before_last_reply = len(whole.segments()[0].tokens) - len(whole.turns[-1].reply_tokens)
    # The third context with a reply of full length fits exactly, and with a token less does not.
    assert play_tokens(frame, hill(turns=3), replies, budget=before_last_reply + REPLY) == whole
    short = play_tokens(frame, hill(turns=3), replies, budget=before_last_reply + REPLY - 1)
    assert isinstance(short, Trajectory) and short.ending is Ending.TOKEN_BUDGET and not short.success
    assert short.final_observation == whole.turns[2].observation
    assert short.segments()[0].tokens == whole.segments()[0].tokens[: len(short.segments()[0].tokens)]
    assert len(short.turns) == 2
    assert rewards_of(short, "format") == [None, 1.0 if middle != GARBAGE else 0.5]
    assert rewards_of(short, "climbed") == rewards_of(whole, "climbed")[:2]


def test_an_episode_that_ends_by_itself_needs_no_room_for_another_reply(frame: ChatFrame) -> None:
    whole = play_tokens(frame, hill(), [form("jump")], budget=10_000)
    assert isinstance(whole, Trajectory)
    budget = len(whole.turns[0].observation_tokens) + REPLY
    assert play_tokens(frame, hill(), [form("jump")], budget=budget) == whole


def test_an_episode_that_is_solved_when_the_budget_ends_it_is_a_success(frame: ChatFrame) -> None:
    whole = play_tokens(frame, hill(), [form("peek"), form("jump")], budget=10_000)
    assert isinstance(whole, Trajectory) and whole.ending is Ending.FAILURE
    budget = len(whole.turns[0].observation_tokens) + REPLY
    short = play_tokens(frame, hill(), [form("peek"), form("jump")], budget=budget)
    assert isinstance(short, Trajectory) and short.ending is Ending.SUCCESS
    assert rewards_of(short, "format") == [1.0]


def test_an_opening_that_does_not_fit_is_a_trajectory_without_turns(frame: ChatFrame) -> None:
    trajectory = play_tokens(frame, hill(), [], budget=REPLY)
    assert isinstance(trajectory, Trajectory)
    assert (trajectory.ending, trajectory.turns) == (Ending.TOKEN_BUDGET, ())
    assert trajectory.final_observation == "Task hill/train/0. Height 0 after 0."
    assert trajectory.segments() == ()


# What a turn records


def test_an_unreadable_reply_is_told_the_form_plays_nothing_and_leaves_the_state() -> None:
    trajectory = play_texts(hill(turns=2), GARBAGE, form("up"))
    first, second = trajectory.turns
    assert (first.actions, first.invalid, first.effective) == ((), FORM, False)
    assert first.rewards == {"invalid_turn": 1.0}
    assert second.observation == FORM
    assert (first.state, second.state) == ("0", "0")
    assert trajectory.final_observation.endswith("after 1.")


def test_an_illegal_action_is_told_by_the_world_what_is_legal() -> None:
    trajectory = play_texts(hill(turns=2), form("fly"), form("up"))
    first, second = trajectory.turns
    assert (first.actions, first.invalid, first.effective) == (("fly",), None, False)
    assert first.rewards == {"invalid_turn": 1.0}
    assert second.observation.startswith(LEGAL)


def test_a_reply_that_was_cut_off_is_unreadable_even_if_what_is_there_has_the_form() -> None:
    episode = one_episode(hill(turns=1))
    answer(episode, form("up"), complete=False)
    result = episode.result()
    assert isinstance(result, Trajectory)
    (turn,) = result.turns
    assert turn.invalid == f"The reply was cut off at its maximum length. {FORM}"
    assert (turn.actions, turn.reply, turn.rewards) == ((), form("up"), {"invalid_turn": 1.0, "format": 0.0})


def test_only_the_first_reply_that_was_cut_off_is_answered_with_the_whole_form() -> None:
    episode = one_episode(hill(turns=4))
    answer(episode, form("up"), complete=False)
    answer(episode, form("up"), complete=False)
    answer(episode, form("up"))
    answer(episode, form("up"), complete=False)
    result = episode.result()
    assert isinstance(result, Trajectory)
    first, again = f"The reply was cut off at its maximum length. {FORM}", "Cut off again."
    assert [turn.invalid for turn in result.turns] == [first, again, None, again]
    assert [turn.observation for turn in result.turns[1:3]] == [first, again]


def test_a_turn_of_several_actions_sums_rewards_and_metrics_and_shows_the_last_observation() -> None:
    trajectory = play_texts(hill(turns=2), form("up", "up"), form("stay"))
    first, second = trajectory.turns
    assert first.actions == ("up", "up")
    assert first.metrics == {"strides": 2.0}
    assert 2.0 <= first.rewards["climbed"] <= 4.0
    assert second.observation == f"Up. Height {first.rewards['climbed']:.0f} after 2."
    assert (first.state, second.state) == ("0", f"{first.rewards['climbed']:.0f}")
    assert (first.effective, second.effective) == (True, False)
    assert trajectory.total("climbed") == first.rewards["climbed"]


def test_a_turn_stops_at_the_end_of_the_episode() -> None:
    world = Disturbed(hill(actions_per_turn=3), lambda call: None)
    trajectory = play_texts(world, form("stay", "jump", "up"))
    assert trajectory.turns[0].actions == ("stay", "jump")
    assert trajectory.ending is Ending.FAILURE
    assert world.count("step") == 2


def test_a_turn_stops_at_an_action_that_is_refused_and_is_invalid_as_a_whole() -> None:
    world = Disturbed(hill(turns=2, actions_per_turn=3), lambda call: None)
    trajectory = play_texts(world, form("up", "fly", "up"), form("stay"))
    first, second = trajectory.turns
    assert first.actions == ("up", "fly")
    assert first.effective and first.rewards["invalid_turn"] == 1.0 and first.rewards["climbed"] > 0
    assert second.observation.startswith(LEGAL)
    assert world.count("step") == 3


def test_no_more_actions_are_played_than_the_episode_has_left() -> None:
    world = Disturbed(hill(actions=3), lambda call: None)
    trajectory = play_texts(world, form("up", "up"), form("up", "up"))
    assert [turn.actions for turn in trajectory.turns] == [("up", "up"), ("up",)]
    assert trajectory.ending is Ending.ACTION_LIMIT
    assert world.count("step") == 3


def test_what_remains_is_counted_down() -> None:
    limited, unlimited = one_episode(hill(actions=5)), one_episode(hill(turns=3))
    assert limited.remaining == Remaining(turns=4, actions_per_turn=2, actions=5)
    assert unlimited.remaining == Remaining(turns=3, actions_per_turn=2, actions=6)
    for episode in (limited, unlimited):
        answer(episode, form("up", "up"))
        answer(episode, GARBAGE)
    assert limited.remaining == Remaining(turns=2, actions_per_turn=2, actions=3)
    assert unlimited.remaining == Remaining(turns=1, actions_per_turn=2, actions=4)


class Uneven(Hill):
    """A world whose first task may have one turn, while the others have three."""

    def limits_of(self, task: Task) -> Limits:
        return Limits(1, 2, 4) if task.id.endswith("/0") else Limits(3, 2, 4)


def test_a_task_keeps_limits_of_its_own() -> None:
    world = Uneven(100, Limits(3, 2, 4))
    for episode, turns in zip(
        make_episodes(rules_for(world, limits=None), world.tasks("train", 2), 1, seed=0), (1, 3), strict=True
    ):
        assert episode.remaining == Remaining(turns=turns, actions_per_turn=2, actions=4)


def test_the_horizon_shortens_turns_alone_and_lengthens_nothing() -> None:
    world = Uneven(100, Limits(3, 2, 4))
    for episode, turns in zip(
        make_episodes(rules_for(world, limits=None, horizon=2), world.tasks("train", 2), 1, seed=0), (1, 2), strict=True
    ):
        assert episode.remaining == Remaining(turns=turns, actions_per_turn=2, actions=4)
    cut = play_texts(hill(turns=4, actions=8), form("down"), form("down"), horizon=2)
    assert (len(cut.turns), cut.ending) == (2, Ending.TURN_LIMIT)


def test_the_policy_is_given_the_instruction_where_it_needs_one(frame: ChatFrame) -> None:
    first = "Task hill/train/0. Height 0 after 0."
    assert one_episode(hill(), frame=frame).context == list(frame.opening(None, first))
    assert one_episode(hill(), frame=frame, instruction="Climb.").context == list(frame.opening("Climb.", first))


def test_the_format_is_the_rollouts() -> None:
    episode = one_episode(hill(turns=1), format=SearchFormat())
    answer(episode, "<think>a</think><search>b</search>")
    result = episode.result()
    assert isinstance(result, Trajectory)
    assert result.turns[0].actions == ("search[b]",)
    assert result.final_observation.startswith(LEGAL)


class NotingFrame:
    """A frame that notes which observations answer a call."""

    end_tokens: tuple[int, ...] = ()

    def __init__(self) -> None:
        self.answers: list[bool] = []

    def opening(self, system: str | None, observation: str) -> tuple[int, ...]:
        return ()

    def continuation(self, observation: str, reply: Sequence[int], *, answers_call: bool = False) -> tuple[int, ...]:
        self.answers.append(answers_call)
        return ()

    def without_thoughts(
        self, system: str | None, observations: Sequence[str], replies: Sequence[tuple[int, ...]]
    ) -> tuple[int, ...]:
        raise AssertionError("thoughts are kept")

    def decode(self, tokens: tuple[int, ...]) -> str:
        raise AssertionError("there are no tokens")


def test_what_the_world_says_of_actions_answers_a_call_and_what_is_said_of_an_unreadable_reply_does_not() -> None:
    noting = NotingFrame()
    play_texts(hill(turns=5, actions=9), form("up"), "nonsense", form("fly"), form("stay"), form("stay"), frame=noting)
    assert noting.answers == [True, False, True, True]


# Worlds' oddities


class Bare(Hill):
    """A world with lone surrogates in its texts, as web pages read through JSON have, and without words or state."""

    def make(self, task: Task, seed: int) -> Environment:
        class BareClimb(Climb):
            def reset(self) -> Observation:
                return Observation("odd \ud800 text", state="\udfff")

            def step(self, action: str) -> Step:
                rewards: Mapping[str, float] = {"goal": True}
                return Step(Observation(""), rewards, success=False)

        return BareClimb(self.top, task, seed)


def test_texts_that_utf_8_cannot_hold_are_made_to_fit_before_they_are_shown(frame: ChatFrame) -> None:
    world = Bare(limits=Limits(turns=2))
    episode = one_episode(world, frame=frame)
    assert episode.context == list(frame.opening(None, "odd ? text"))
    tokens = frame.reply(form("up"))
    for _ in range(2):
        episode.receive(form("up"), tokens, (0.0,) * len(tokens), True)
        episode.settle()
    result = episode.result()
    assert isinstance(result, Trajectory)
    first, second = result.turns
    assert (first.observation, first.state) == ("odd ? text", "?")
    assert (second.observation, second.state) == ("", None)
    assert first.rewards == {"goal": 1.0} and type(first.rewards["goal"]) is float


def test_a_world_that_is_lost_takes_the_episode_with_it_and_says_why() -> None:
    def disturb(call: object) -> None:
        raise OSError("no route to \udc80")

    episode = one_episode(Disturbed(hill(), disturb))
    assert episode.over
    result = episode.result()
    assert isinstance(result, LostEpisode)
    assert (result.task.id, result.group, result.replica) == ("hill/train/0", 0, 0)
    assert "'hill' lost task 'hill/train/0' after 3 attempts" in result.reason
    assert result.reason.endswith("OSError: no route to ?")


def test_the_world_is_closed_when_the_episode_is_over_and_not_before() -> None:
    world = Disturbed(hill(turns=2), lambda call: None)
    episode = one_episode(world)
    answer(episode, form("up"))
    assert world.count("close") == 0
    answer(episode, form("up"))
    world.wait_until_closed()
    assert world.count("close") == 1
    episode.close()
    assert world.count("close") == 1
