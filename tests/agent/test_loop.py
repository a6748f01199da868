"""Many episodes at once: exactly the tokens that were sampled, in an order that no clock and no fault can change."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable

import pytest
from agent_samples import (
    Call,
    Disturbed,
    Hill,
    Planned,
    RecordingEngine,
    faulty,
    form,
    improvised,
    play_with_engine,
    rules_for,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from turnwise import seeding
from turnwise.agent.host import RetryPolicy
from turnwise.agent.loop import RolloutResult, make_episodes, require_few_losses, roll_out
from turnwise.data.trajectory import Ending, LostEpisode, Trajectory
from turnwise.errors import WorldLost
from turnwise.policy.tokenizer import START, ChatFrame
from turnwise.world import Limits, World

# Tokens


def check_tokens(played: RolloutResult, engine: RecordingEngine, frame: ChatFrame, replicas: int) -> None:
    """Each trajectory is what the engine was given and what it sampled, and nothing else."""
    for trajectory in played.trajectories:
        episode = trajectory.group * replicas + trajectory.replica
        contexts = [context for of_episode, context in engine.submitted if of_episode == episode]
        replies = [reply for reply in engine.replies if reply.episode == episode]
        sequence = trajectory.segments()[0]
        # Every context begins with the one before it and the reply to that.
        for (before, reply), after in zip(zip(contexts, replies, strict=True), contexts[1:], strict=False):
            assert after[: len(before) + len(reply.tokens)] == before + reply.tokens
        assert sequence.tokens == contexts[-1] + replies[-1].tokens
        turn_of_token, log_probabilities = [-1] * len(sequence.tokens), [0.0] * len(sequence.tokens)
        for turn, (context, reply) in enumerate(zip(contexts, replies, strict=True)):
            place = slice(len(context), len(context) + len(reply.tokens))
            assert sequence.tokens[place] == reply.tokens
            turn_of_token[place] = [turn] * len(reply.tokens)
            log_probabilities[place] = reply.log_probabilities
        assert sequence.turn_of_token == tuple(turn_of_token)
        assert sequence.log_probabilities == tuple(log_probabilities)
        assert sequence.mask == tuple(int(turn >= 0) for turn in turn_of_token)
        check_observations(trajectory, [reply.complete for reply in replies], frame)


def check_observations(trajectory: Trajectory, complete: list[bool], frame: ChatFrame) -> None:
    """The observations' tokens are their texts in the chat's frame, with the end that a reply cut off did not have."""
    first, *later = trajectory.turns
    assert first.observation_tokens == frame.opening(None, first.observation)
    for before, turn, was_complete in zip(trajectory.turns, later, complete, strict=False):
        assert turn.observation_tokens == frame.continuation(turn.observation, before.reply_tokens)
        assert (turn.observation_tokens[:1] == frame.end_tokens) == (not was_complete)
    for turn in trajectory.turns:
        assert turn.reply == frame.decode(turn.reply_tokens)


@pytest.mark.parametrize("world_delay", [0, 2])
@pytest.mark.parametrize("seed", range(4))
def test_a_trajectory_is_exactly_what_the_engine_saw_and_sampled(frame: ChatFrame, seed: int, world_delay: int) -> None:
    played, engine = play_with_engine(
        Hill(), frame, improvised(frame, seed), tasks=4, replicas=3, world_delay=world_delay
    )
    assert len(played.trajectories) == 12 and not played.lost
    assert max(len(trajectory.turns) for trajectory in played.trajectories) >= 4
    check_tokens(played, engine, frame, replicas=3)


def test_the_improvised_replies_hold_all_that_could_go_wrong(frame: ChatFrame) -> None:
    # What the tests of this file are worth depends on it.
    _, engine = play_with_engine(Hill(), frame, improvised(frame, 0), tasks=6, replicas=4)
    decoded = [frame.decode(reply.tokens) for reply in engine.replies]
    assert any(not reply.complete for reply in engine.replies)
    assert any("\ufffd" in text for text in decoded)
    assert any(START in text for text in decoded)
    # Tokens that are not those of their own text: who decodes and encodes again is found out.
    assert any(frame.reply(frame.decode(reply.tokens)) != reply.tokens for reply in engine.replies if reply.complete)
    order = [episode for episode, _ in engine.submitted]
    assert order[:24] == list(range(24))
    assert order[24:] != sorted(order[24:])


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(data=st.data())
def test_replies_of_any_tokens_are_kept_as_they_were_sampled(frame: ChatFrame, data: st.DataObject) -> None:
    others = st.integers(0, len(frame.tokenizer) - 1).filter(lambda token: token not in frame.end_tokens)
    tokens = st.lists(others, max_size=12).map(tuple)
    complete = st.builds(Planned, tokens.map(lambda drawn: (*drawn, frame.end_token)), st.integers(1, 3))
    replies = complete | st.builds(Planned, tokens, st.integers(1, 3), st.just(False))
    plans = data.draw(st.lists(replies, min_size=6, max_size=6))
    world = Hill(limits=Limits(turns=3, actions_per_turn=2))
    played, engine = play_with_engine(world, frame, plans.__getitem__, tasks=2, replicas=1)
    assert len(played.trajectories) == 2
    check_tokens(played, engine, frame, replicas=1)


def test_no_context_leaves_less_room_than_a_reply_of_full_length_needs(frame: ChatFrame) -> None:
    budget, longest = 160, 30
    played, engine = play_with_engine(
        Hill(top=100), frame, improvised(frame, 1), tasks=5, token_budget=budget, reply_tokens=longest
    )
    assert max(len(context) for _, context in engine.submitted) <= budget - longest
    ended = Counter(trajectory.ending for trajectory in played.trajectories)
    assert ended[Ending.TOKEN_BUDGET] >= 5
    for trajectory in played.trajectories:
        given_at = [index for index, turn in enumerate(trajectory.turns) if "format" in turn.rewards]
        assert given_at == [len(trajectory.turns) - 1]


# Order


def run(
    frame: ChatFrame, world: World, world_delay: int = 0, patience: RetryPolicy | None = None, seed: int = 3
) -> tuple[list[Trajectory], list[tuple[int, tuple[int, ...]]]]:
    played, engine = play_with_engine(
        world, frame, improvised(frame, seed), tasks=4, world_delay=world_delay, patience=patience
    )
    assert not played.lost
    return played.trajectories, engine.submitted


def late(call: Call) -> None:
    """Each call takes a time of its own, so that worlds answer in another order than they were asked."""
    time.sleep(seeding.derive(call.episode, call.method, call.number) % 7 / 1000)


def late_and_faulty(call: Call) -> None:
    late(call)
    faulty(call)


@pytest.mark.parametrize("world_delay", [0, 1, 3, 50])
@pytest.mark.parametrize("disturb", [late, faulty, late_and_faulty])
def test_delays_and_faults_change_neither_a_trajectory_nor_the_order_of_submissions(
    frame: ChatFrame, disturb: Callable[[Call], None], world_delay: int
) -> None:
    world = Disturbed(Hill(), disturb)
    assert run(frame, world, world_delay) == run(frame, Hill(), world_delay)
    assert (world.count("make") > 8) == (disturb is not late)


def test_a_world_that_hangs_once_changes_nothing(frame: ChatFrame) -> None:
    never = threading.Event()

    def disturb(call: Call) -> None:
        if (call.task, call.method, call.number, call.attempt) == ("hill/train/2", "step", 2, 1):
            never.wait()

    world = Disturbed(Hill(), disturb)
    disturbed = run(frame, world, patience=RetryPolicy(seconds=0.4, retries=10))
    never.set()
    assert disturbed == run(frame, Hill())
    assert world.count("make") >= 10  # two replicas of this task hung


def test_the_delay_of_worlds_is_part_of_what_decides_the_order(frame: ChatFrame) -> None:
    # Were it otherwise, the tests above could not fail.
    _, at_once = run(frame, Hill(), world_delay=0)
    _, delayed = run(frame, Hill(), world_delay=3)
    assert at_once != delayed


def test_a_world_enters_at_its_fixed_engine_step_and_in_order(frame: ChatFrame) -> None:
    # Replies to submissions 0 to 3 finish at engine steps 2, 1, 1 and 4; with a delay of 2 their worlds are waited for
    # at steps 4, 3, 3 and 6. When episodes 1 and 2 come back at step 3, then 0 at step 4, their second replies are
    # submissions 4, 5, 6; the second reply of episode 1 (one step) finishes at step 4, with that of episode 3.
    steps = [2, 1, 1, 4, 1, 9, 9, 9]
    world = Hill(top=100, limits=Limits(turns=2))
    plan = [Planned(frame.reply(form("up")), number) for number in steps]
    _, engine = play_with_engine(world, frame, plan.__getitem__, tasks=4, replicas=1, world_delay=2)
    assert [episode for episode, _ in engine.submitted] == [0, 1, 2, 3, 1, 2, 0, 3]
    assert [reply.episode for reply in engine.replies] == [1, 2, 0, 1, 3, 2, 0, 3]


@pytest.mark.parametrize(("steps", "world_delay"), [((1, 1), 0), ((1, 2), 1), ((1, 3), 2)])
def test_worlds_work_side_by_side(frame: ChatFrame, steps: tuple[int, int], world_delay: int) -> None:
    # Nobody passes the barrier alone: one world's step is over only if the other's has begun.
    barrier = threading.Barrier(2)

    def disturb(call: Call) -> None:
        if call.method == "step":
            barrier.wait()

    world = Disturbed(Hill(limits=Limits(turns=1)), disturb)
    plan = [Planned(frame.reply(form("stay")), number) for number in steps]
    played, _ = play_with_engine(
        world,
        frame,
        plan.__getitem__,
        tasks=2,
        replicas=1,
        world_delay=world_delay,
        patience=RetryPolicy(seconds=60, retries=0),
    )
    assert len(played.trajectories) == 2


def test_an_episode_that_ends_does_not_hold_up_the_others_and_progress_is_told(frame: ChatFrame) -> None:
    texts = ["jump", "up", "up", "jump"]
    plan = [Planned(frame.reply(form(text))) for text in texts]
    engine = RecordingEngine(plan.__getitem__)
    world = Hill(top=100)
    told: list[tuple[int, int]] = []
    episodes = make_episodes(rules_for(world, frame), world.tasks("train", 2), 1, seed=0)
    roll_out(episodes, engine, frame.decode, on_progress=lambda done, total: told.append((done, total)))
    assert told == [(1, 2), (1, 2), (2, 2)]
    assert [episode for episode, _ in engine.submitted] == [0, 1, 1, 1]


# Losses


def test_a_lost_world_is_missing_data_and_leaves_the_others_as_they_are(frame: ChatFrame) -> None:
    def disturb(call: Call) -> None:
        if call.task == "hill/train/1" and call.method == "step" and call.number == 1:
            raise ConnectionError("no route")

    # All replies are alike, so that those of the others do not depend on how many were submitted.
    def plan(number: int) -> Planned:
        return Planned(frame.reply(form("up")))

    undisturbed, _ = play_with_engine(Hill(), frame, plan)
    played, engine = play_with_engine(Disturbed(Hill(), disturb), frame, plan)
    assert played.trajectories == [each for each in undisturbed.trajectories if each.group != 1]
    assert [(loss.task.id, loss.group, loss.replica) for loss in played.lost] == [
        ("hill/train/1", 1, 0),
        ("hill/train/1", 1, 1),
    ]
    for loss in played.lost:
        assert loss.reason == (
            "the world 'hill' lost task 'hill/train/1' after 3 attempts; the last error was ConnectionError: no route"
        )
    assert engine.in_flight == 0


def test_a_world_that_never_starts_is_lost_before_anything_is_asked_of_the_engine(frame: ChatFrame) -> None:
    def disturb(call: Call) -> None:
        if call.method == "reset":
            raise ConnectionError("no route")

    played, engine = play_with_engine(Disturbed(Hill(), disturb), frame, improvised(frame, 0))
    assert (len(played.trajectories), len(played.lost), engine.submitted) == (0, 6, [])


def test_few_losses_are_borne_and_more_stop_the_run_with_world_and_error(frame: ChatFrame) -> None:
    task = Hill().tasks("train", 1)[0]
    kept = [Trajectory(task, 0, replica, (), Ending.FAILURE, "") for replica in range(3)]
    lost = [LostEpisode(task, 0, 3, "ConnectionError: no route")]
    require_few_losses(RolloutResult(kept, lost), "hill", 0.25)
    require_few_losses(RolloutResult([], []), "hill", 0.0)
    require_few_losses(RolloutResult(kept, []), "hill", 0.0)
    with pytest.raises(WorldLost, match=r"24%.*'hill'.*\b1\b.*\b4\b.*ConnectionError.*TW-too-many-lost"):
        require_few_losses(RolloutResult(kept, lost), "hill", 0.24)
    with pytest.raises(WorldLost):
        require_few_losses(RolloutResult([], lost), "hill", 0.99)


def test_no_world_stays_open_when_the_engine_fails(frame: ChatFrame) -> None:
    def plan(number: int) -> Planned:
        if number == 7:
            raise MemoryError("the engine is out of memory")
        return Planned(frame.reply(form("stay")))

    world = Disturbed(Hill(), lambda call: None)
    with pytest.raises(MemoryError):
        play_with_engine(world, frame, plan)
    world.wait_until_closed()
    assert world.count("make") == world.count("close") == 6
