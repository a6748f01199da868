"""A continuation begins in exactly the recorded state: the same world, the same tokens, and nothing else."""

from __future__ import annotations

from dataclasses import replace

import pytest
from agent_samples import (
    Disturbed,
    Hill,
    Planned,
    RecordingEngine,
    answer,
    faulty,
    form,
    improvised,
    play_with_engine,
    rules_for,
)

from turnwise.agent.host import RetryPolicy
from turnwise.agent.loop import episode_seed, make_episodes, roll_out
from turnwise.agent.replay import Continuation, Point, points
from turnwise.data.trajectory import LostEpisode, Trajectory, Turn
from turnwise.policy.tokenizer import ChatFrame
from turnwise.world import Limits, World

SEED = 5
"""That of `play_with_engine`."""


def recorded(world: World, frame: ChatFrame, *, noise: int = 0) -> list[Trajectory]:
    """Trajectories of several turns, with good, illegal, unreadable and cut-off replies."""
    played, _ = play_with_engine(world, frame, improvised(frame, noise), tasks=4, replicas=3)
    assert max(len(trajectory.turns) for trajectory in played.trajectories) >= 4
    return played.trajectories


def every_point(trajectories: list[Trajectory]) -> list[Point]:
    return [
        point
        for trajectory in trajectories
        for point in points(trajectory, episode_seed(SEED, trajectory.group, trajectory.replica))
    ]


def reply_again(episode: Continuation, turn: Turn, frame: ChatFrame) -> None:
    complete = turn.reply_tokens[-1:] == frame.end_tokens
    episode.receive(turn.reply, turn.reply_tokens, turn.log_probabilities, complete)
    episode.settle()


def played_to_the_end(episode: Continuation, point: Point, frame: ChatFrame) -> Trajectory | LostEpisode:
    """What comes of a continuation that replies as was recorded."""
    episode.open()
    for turn in point.trajectory.turns[point.turn :]:
        reply_again(episode, turn, frame)
    return episode.result()


@pytest.mark.parametrize("noise", range(3))
def test_replying_as_was_recorded_gives_the_recorded_trajectory(frame: ChatFrame, noise: int) -> None:
    # Every stride of this hill is drawn from the episode's seed: it is the recorded noise that is met again.
    for point in every_point(recorded(Hill(), frame, noise=noise)):
        trajectory = point.trajectory
        episode = Continuation(rules_for(Hill(), frame), point, trajectory.group, trajectory.replica)
        result = played_to_the_end(episode, point, frame)
        assert isinstance(result, Trajectory)
        assert [turn.trained for turn in result.turns] == [
            place >= point.turn for place in range(len(trajectory.turns))
        ]
        assert replace(result, turns=tuple(replace(turn, trained=True) for turn in result.turns)) == trajectory


def test_an_episode_without_earlier_thoughts_can_be_continued_from_every_turn(frame: ChatFrame) -> None:
    played, _ = play_with_engine(Hill(), frame, improvised(frame, 1), tasks=4, replicas=3, thoughts="dropped")
    assert any(len(trajectory.segment_turns) > 2 for trajectory in played.trajectories)
    for point in every_point(played.trajectories):
        trajectory = point.trajectory
        rules = rules_for(Hill(), frame, thoughts="dropped")
        result = played_to_the_end(Continuation(rules, point, trajectory.group, trajectory.replica), point, frame)
        assert isinstance(result, Trajectory)
        assert replace(result, turns=tuple(replace(turn, trained=True) for turn in result.turns)) == trajectory


def test_the_context_is_the_recorded_tokens_to_the_bit(frame: ChatFrame) -> None:
    for point in every_point(recorded(Hill(), frame)):
        episode = Continuation(rules_for(Hill(), frame), point, 0, 0)
        episode.open()
        whole = point.trajectory.segments(every_reply=True)[0]
        begins = whole.turn_of_token.index(point.turn)
        assert tuple(episode.context) == whole.tokens[:begins]
        episode.close()


def test_nothing_that_was_recorded_is_encoded_again(frame: ChatFrame) -> None:
    # Tokens that no tokenizer would make of the observations: who encodes them again loses these.
    trajectory = max(recorded(Hill(), frame), key=lambda each: len(each.turns))
    odd = replace(
        trajectory,
        turns=tuple(replace(turn, observation_tokens=(7, *turn.observation_tokens, 7)) for turn in trajectory.turns),
    )
    point = points(odd, episode_seed(SEED, odd.group, odd.replica))[-1]
    whole = odd.segments(every_reply=True)[0]
    episode = Continuation(rules_for(Hill(), frame), point, 0, 0)
    episode.open()
    assert tuple(episode.context) == whole.tokens[: whole.turn_of_token.index(point.turn)]
    reply_again(episode, point.awaited, frame)
    result = episode.result()
    assert isinstance(result, Trajectory)
    assert result.segments(every_reply=True)[0] == whole


def test_a_fresh_reply_leads_elsewhere(frame: ChatFrame) -> None:
    point = next(
        point for point in every_point(recorded(Hill(), frame)) if point.turn == 2 and point.awaited.actions == ("up",)
    )
    episode = Continuation(rules_for(Hill(), frame), point, 0, 0)
    episode.open()
    tokens = frame.reply(form("jump"))
    episode.receive(form("jump"), tokens, (-1.0,) * len(tokens), True)
    episode.settle()
    result = episode.result()
    assert isinstance(result, Trajectory)
    assert len(result.turns) == 3
    assert (result.turns[2].actions, result.turns[2].trained) == (("jump",), True)
    assert result.turns[2].observation_tokens == point.awaited.observation_tokens


def test_another_seed_is_another_episode_and_is_noticed(frame: ChatFrame) -> None:
    for point in every_point(recorded(Hill(), frame)):
        if point.trajectory.total("climbed") < 4 or point.turn < len(point.trajectory.turns) - 1:
            continue
        stranger = next(
            seed
            for seed in range(100)
            if _strides(seed) != _strides(point.seed)  # a seed whose noise happens to agree would be no other episode
        )
        episode = Continuation(rules_for(Hill(), frame), replace(point, seed=stranger), 0, 0)
        episode.open()
        result = episode.result()
        assert isinstance(result, LostEpisode)
        assert "a world must do the same again" in result.reason
        return
    raise AssertionError("no trajectory was long enough")


def _strides(seed: int) -> list[float]:
    world = Hill()
    environment = world.make(world.tasks("train", 1)[0], seed)
    environment.reset()
    return [environment.step("up").rewards["climbed"] for _ in range(2)]


@pytest.mark.parametrize(
    "change",
    [
        lambda turn: replace(turn, observation=turn.observation + "!"),
        lambda turn: replace(turn, rewards={**turn.rewards, "climbed": 9.0}),
        lambda turn: replace(turn, state="elsewhere"),
        lambda turn: replace(turn, effective=not turn.effective),
    ],
)
@pytest.mark.parametrize("place", [0, 1])
def test_whatever_differs_from_the_record_is_noticed(frame: ChatFrame, change, place: int) -> None:  # type: ignore[no-untyped-def]
    trajectory = next(each for each in recorded(Hill(), frame) if len(each.turns) > 2)
    turns = [change(turn) if number == place else turn for number, turn in enumerate(trajectory.turns)]
    altered = replace(trajectory, turns=tuple(turns))
    point = points(altered, episode_seed(SEED, altered.group, altered.replica))[2]
    episode = Continuation(rules_for(Hill(), frame), point, 0, 0)
    episode.open()
    result = episode.result()
    assert isinstance(result, LostEpisode)
    assert f"turn {place + 1} was recorded as" in result.reason


def test_rewards_of_ones_own_on_the_recorded_turns_are_no_difference_of_the_world(frame: ChatFrame) -> None:
    # One number per turn, as of the overlong penalty, which no world gives again.
    for trajectory in recorded(Hill(), frame):
        turns = tuple(replace(turn, rewards={**turn.rewards, "brevity": -0.5}) for turn in trajectory.turns)
        for point in points(replace(trajectory, turns=turns), episode_seed(SEED, trajectory.group, trajectory.replica)):
            episode = Continuation(rules_for(Hill(), frame), point, trajectory.group, trajectory.replica)
            assert isinstance(played_to_the_end(episode, point, frame), Trajectory)


def test_the_observation_that_is_answered_anew_is_verified_too(frame: ChatFrame) -> None:
    trajectory = next(each for each in recorded(Hill(), frame) if len(each.turns) > 2)
    first, *others = trajectory.turns
    altered = replace(trajectory, turns=(replace(first, observation="another"), *others))
    episode = Continuation(rules_for(Hill(), frame), points(altered, episode_seed(SEED, altered.group, 0))[0], 0, 0)
    episode.open()
    result = episode.result()
    assert isinstance(result, LostEpisode) and "before turn 1 it had said 'another'" in result.reason


def test_a_world_that_ends_where_it_had_gone_on_is_noticed(frame: ChatFrame) -> None:
    long = next(each for each in recorded(Hill(), frame) if len(each.turns) == 6)
    point = points(long, episode_seed(SEED, long.group, long.replica))[-1]
    shorter = rules_for(Hill(limits=Limits(turns=3, actions_per_turn=2, actions=10)), frame)
    episode = Continuation(shorter, point, 0, 0)
    episode.open()
    result = episode.result()
    assert isinstance(result, LostEpisode)


def test_faults_of_the_world_change_no_continuation(frame: ChatFrame) -> None:
    def continued(world: World, patience: RetryPolicy) -> list[Trajectory]:
        chosen = [point for point in every_point(trajectories) if point.turn]
        episodes = [
            Continuation(rules_for(world, frame, patience), point, group, 0) for group, point in enumerate(chosen)
        ]
        return roll_out(episodes, RecordingEngine(improvised(frame, 9)), frame.decode).trajectories

    trajectories = recorded(Hill(), frame)
    calm = continued(Hill(), RetryPolicy(60, 0))
    shaken = Disturbed(Hill(), faulty)
    assert continued(shaken, RetryPolicy(60, 4)) == calm
    assert shaken.count("reset") > len(calm)  # there were faults
    assert max(len(trajectory.turns) for trajectory in calm) > 3


def test_scripted_episodes_without_tokens_can_be_continued_as_well() -> None:
    (episode,) = make_episodes(rules_for(Hill()), Hill().tasks("train", 1), 1, seed=3)
    episode.open()
    for reply in (form("up"), "no form", form("stay"), form("jump")):
        answer(episode, reply)
    trajectory = episode.result()
    assert isinstance(trajectory, Trajectory)
    continuation = Continuation(rules_for(Hill()), Point(trajectory, 3, episode_seed(3, 0, 0)), 0, 0)
    continuation.open()
    answer(continuation, form("jump"))
    result = continuation.result()
    assert isinstance(result, Trajectory)
    assert [turn.reply for turn in result.turns] == [turn.reply for turn in trajectory.turns]
    assert result.final_observation == trajectory.final_observation


def test_a_point_is_a_turn_of_its_trajectory(frame: ChatFrame) -> None:
    trajectory = recorded(Hill(), frame)[0]
    for turn in (-1, len(trajectory.turns)):
        with pytest.raises(ValueError, match="a point must be a turn of its trajectory"):
            Point(trajectory, turn, 0)


@pytest.mark.parametrize("most", [1, 3, 100])
def test_no_more_worlds_are_open_than_allowed_and_all_are_played(frame: ChatFrame, most: int) -> None:
    world = Disturbed(Hill(), lambda call: None)
    episodes = make_episodes(rules_for(world, frame), world.tasks("train", 4), 3, seed=5)
    engine = RecordingEngine(lambda number: Planned(frame.reply(form("up")), steps=1 + number % 3))
    running: list[int] = []
    played = roll_out(
        episodes,
        engine,
        frame.decode,
        most_at_once=most,
        on_progress=lambda done, total: running.append(engine.in_flight),
    )
    assert [(each.group, each.replica) for each in played.trajectories] == [(g, r) for g in range(4) for r in range(3)]
    assert max(running) == min(most, 12) and running[-1] == 0
    # A world is opened when another has ended, not before: resets stand between the steps.
    methods = [call.method for call in world.calls if call.method in ("reset", "step")]
    assert methods[: min(most, 12) + 1] == ["reset"] * min(most, 12) + ["step"]
