"""A world that raises, hangs or contradicts itself is tried again, and otherwise lost: never wrong."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pytest
from agent_samples import Call, Climb, Disturbed, Hill

from turnwise.agent.host import Host, RetryPolicy
from turnwise.errors import WorldLost
from turnwise.world import Environment, Observation, Remaining, ScriptedAction, Step, Task, World

TASK = Hill().tasks("train", 1)[0]
LONG = RetryPolicy(seconds=60, retries=2)
SHORT = RetryPolicy(seconds=0.1, retries=1)
HURRIED = RetryPolicy(seconds=0.3, retries=10)
"""For worlds that hang once: a busy machine may cost a healthy world an attempt, and must not cost the test."""

TURNS = (("up", "stay"), ("up",), ("up", "up"))


def play(world: World, patience: RetryPolicy = LONG, turns: tuple[tuple[str, ...], ...] = TURNS) -> list[Any]:
    """Everything that a host says in one episode."""
    host = Host(world, TASK, 7, patience)
    try:
        said: list[Any] = [host.reset()]
        for actions in turns:
            host.start(actions)
            said.append(host.finish())
        said.append(host.decide("random", np.random.default_rng(3), Remaining(3, 2, 6)))
    finally:
        host.close()
    return said


UNDISTURBED = play(Hill(top=100))


def failing(method: str, number: int, times: int) -> Disturbed:
    """A hill on which one call of a method fails in the first `times` environments."""

    def disturb(call: Call) -> None:
        if (call.method, call.number) == (method, number) and call.attempt <= times:
            raise ConnectionError(f"{method} {number} of attempt {call.attempt}")

    return Disturbed(Hill(top=100), disturb)


CALLS = [("make", 0), ("reset", 0), *(("step", number) for number in range(5)), ("decide", 0)]


@pytest.mark.parametrize("blocks", [True, False])
@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize(("method", "number"), CALLS)
def test_a_call_that_raises_is_made_again_as_if_nothing_had_happened(
    method: str, number: int, times: int, blocks: bool
) -> None:
    """Wherever the world runs: on a thread of its own, or on that of its caller."""
    world = failing(method, number, times)
    world.blocks = blocks
    assert play(world) == UNDISTURBED
    assert world.count("make") == 1 + times


@pytest.mark.parametrize(("method", "number"), CALLS)
def test_a_call_that_always_raises_loses_the_world_and_names_task_and_error(method: str, number: int) -> None:
    world = failing(method, number, times=99)
    with pytest.raises(WorldLost) as lost:
        play(world)
    assert lost.value.message == (
        "the world 'hill' lost task 'hill/train/0' after 3 attempts; the last error was "
        f"ConnectionError: {method} {number} of attempt 3"
    )


def test_retries_are_for_the_whole_episode_and_0_means_none() -> None:
    def disturb(call: Call) -> None:
        # Each attempt comes one step further than the one before.
        if (call.method, call.number) == ("step", call.attempt - 1):
            raise ConnectionError(f"attempt {call.attempt}")

    with pytest.raises(WorldLost, match=r"\b3\b.*attempt 3.*TW-world-lost"):
        play(Disturbed(Hill(), disturb))
    with pytest.raises(WorldLost, match=r"\b1\b.*attempt 1.*TW-world-lost"):
        play(Disturbed(Hill(), disturb), RetryPolicy(60, retries=0))
    assert play(Disturbed(Hill(top=100), disturb), RetryPolicy(60, retries=5)) == UNDISTURBED


@pytest.fixture
def never() -> Iterator[threading.Event]:
    """What a world waits for that hangs; the test's end lets it go on, so that no thread is left."""
    event = threading.Event()
    yield event
    event.set()


@pytest.mark.parametrize(("method", "number"), CALLS)
def test_a_call_that_hangs_once_is_abandoned_and_made_again(method: str, number: int, never: threading.Event) -> None:
    def disturb(call: Call) -> None:
        if (call.method, call.number, call.attempt) == (method, number, 1):
            never.wait()

    assert play(Disturbed(Hill(top=100), disturb), HURRIED) == UNDISTURBED


@pytest.mark.parametrize("method", ["make", "reset", "step", "decide"])
def test_a_call_that_always_hangs_loses_the_world(method: str, never: threading.Event) -> None:
    def disturb(call: Call) -> None:
        if call.method == method:
            never.wait()

    with pytest.raises(WorldLost, match=r"\b2\b.*TimeoutError.*no answer within 0\.1.*TW-world-lost"):
        play(Disturbed(Hill(), disturb), SHORT)


def test_an_abandoned_turn_does_not_go_on_in_the_environment_that_took_its_place() -> None:
    # The first environment hangs in "up"; while the second plays "up", the first goes on with "stay".
    second_is_playing, first_went_on = threading.Event(), threading.Event()

    def disturb(call: Call) -> None:
        if call.method == "step" and call.number > 0:
            first_went_on.set()
        elif call.method == "step" and call.attempt == 1:
            second_is_playing.wait()
        elif call.method == "step":
            second_is_playing.set()
            first_went_on.wait()

    world = Disturbed(Hill(top=100), disturb)
    assert play(world, HURRIED, turns=TURNS[:1])[:2] == UNDISTURBED[:2]
    last = world.count("make")
    assert sum((call.method, call.attempt) == ("step", last) for call in world.calls) == 2


def test_an_abandoned_baseline_draws_from_no_generator_of_another_attempt() -> None:
    # The second attempt has drawn once when the first goes on and draws too; then the second draws again.
    second_has_drawn, first_has_drawn = threading.Event(), threading.Event()

    class Drawing(Climb):
        made: ClassVar[list[Drawing]] = []

        def decide(self, baseline: str, generator: np.random.Generator, remaining: Remaining) -> ScriptedAction:
            if self is self.made[0]:
                second_has_drawn.wait()
                generator.integers(1000)
                first_has_drawn.set()
                raise ConnectionError("too late")
            thought = str(generator.integers(1000))
            second_has_drawn.set()
            first_has_drawn.wait()
            return ScriptedAction(thought, (str(generator.integers(1000)),))

    class DrawingHill(Hill):
        def make(self, task: Task, seed: int) -> Environment:
            Drawing.made.append(Drawing(self.top, task, seed))
            return Drawing.made[-1]

    alone = np.random.default_rng(3)
    expected = ScriptedAction(str(alone.integers(1000)), (str(alone.integers(1000)),))
    assert play(DrawingHill(), HURRIED, turns=())[-1] == expected


def test_a_world_that_leaves_the_interpreter_is_a_world_that_raised() -> None:
    def leave_once(call: Call) -> None:
        if (call.method, call.number, call.attempt) == ("step", 3, 1):
            raise SystemExit("goodbye")

    def leave(call: Call) -> None:
        if call.method == "reset":
            raise SystemExit("goodbye")

    assert play(Disturbed(Hill(top=100), leave_once)) == UNDISTURBED
    with pytest.raises(WorldLost, match=r"\b3\b.*raised SystemExit.*goodbye.*TW-world-lost"):
        play(Disturbed(Hill(), leave))


class Fickle(Hill):
    """Fails once in its third step; afterwards `fickle` attempts in a row tell the past otherwise than it was."""

    def __init__(self, change: str, fickle: int) -> None:
        super().__init__(top=100)
        self.change, self.fickle, self.made = change, fickle, 0

    def make(self, task: Task, seed: int) -> Environment:
        self.made += 1
        world, number = self, self.made

        class FickleClimb(Climb):
            def reset(self) -> Observation:
                first = super().reset()
                lies = world.change == "reset" and 1 < number <= 1 + world.fickle
                return Observation("Another hill.") if lies else first

            def step(self, action: str) -> Step:
                step = super().step(action)
                if number == 1 and self._steps == 3:
                    raise ConnectionError("broken")
                if 1 < number <= 1 + world.fickle and self._steps == 1:
                    changes: dict[str, Any] = {
                        "observation": Observation("Another height."),
                        "rewards": {"climbed": 0.5},
                        "effective": False,
                    }
                    return replace(step, **{world.change: changes[world.change]}) if world.change in changes else step
                return step

        return FickleClimb(self.top, task, seed)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("reset", "fresh environment.*same.*and seed gave another first observation.*TW-world-lost"),
        ("observation", "replaying 'up' on.*fresh environment gave another result.*TW-world-lost"),
        ("rewards", "replaying 'up' on.*fresh environment gave another result.*TW-world-lost"),
        ("effective", "replaying 'up' on.*fresh environment gave another result.*TW-world-lost"),
    ],
)
def test_a_world_that_tells_the_past_otherwise_is_tried_again_and_then_lost(change: str, reason: str) -> None:
    assert play(Fickle(change, fickle=1)) == UNDISTURBED
    with pytest.raises(WorldLost, match=reason):
        play(Fickle(change, fickle=2))


def test_a_turn_stops_at_the_end_of_the_episode_and_at_an_action_that_is_refused() -> None:
    world = Disturbed(Hill(top=100), lambda call: None)
    _, refused, over, _ = play(world, turns=(("up", "fly", "up"), ("rest", "up")))
    assert [step.valid for step in refused] == [True, False]
    assert [step.truncated for step in over] == [True]
    assert world.count("step") == 3


def test_every_environment_is_closed_once_also_those_that_failed_or_hung(never: threading.Event) -> None:
    def disturb(call: Call) -> None:
        if (call.method, call.attempt) in [("make", 1), ("step", 3)]:
            never.wait()
        if (call.method, call.attempt) in [("reset", 2), ("decide", 4)]:
            raise ConnectionError(call.method)

    world = Disturbed(Hill(top=100), disturb)
    assert play(world, HURRIED) == UNDISTURBED
    never.set()
    world.wait_until_closed()
    closed = [call.attempt for call in world.calls if call.method == "close"]
    assert sorted(closed) == list(range(1, world.count("make") + 1))
    assert len(closed) >= 5


def test_a_world_that_fails_to_close_has_given_its_data_and_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    def disturb(call: Call) -> None:
        if call.method == "close":
            raise OSError("the slot is gone")

    world = Disturbed(Hill(top=100), disturb)
    assert play(world) == UNDISTURBED
    world.wait_until_closed()
    assert "world 'hill', task 'hill/train/0' failed to close: OSError: the slot is gone" in caplog.messages


def test_every_further_attempt_is_logged_with_its_reason(caplog: pytest.LogCaptureFixture) -> None:
    play(failing("step", 2, times=1))
    (message,) = caplog.messages
    said, _, place = message.removesuffix("); trying again").partition(" (")
    assert said == "world 'hill', task 'hill/train/0': ConnectionError: step 2 of attempt 1"
    assert re.fullmatch(rf"{re.escape(__file__)}:\d+", place), "the line of the world's own code that raised"


def test_a_world_that_never_blocks_runs_on_its_callers_thread_and_is_closed_once() -> None:
    threads: list[threading.Thread] = []
    world = Disturbed(Hill(top=100), lambda call: threads.append(threading.current_thread()))
    world.blocks = False
    assert play(world) == UNDISTURBED
    assert set(threads) == {threading.current_thread()}
    assert world.count("close") == 1


def test_the_users_interrupt_within_a_world_that_never_blocks_is_no_fault_of_the_world() -> None:
    def interrupt(call: Call) -> None:
        raise KeyboardInterrupt

    world = Disturbed(Hill(), interrupt)
    world.blocks = False
    with pytest.raises(KeyboardInterrupt):
        play(world)


def test_a_host_that_was_never_reset_closes_nothing() -> None:
    world = Disturbed(Hill(), lambda call: None)
    Host(world, TASK, 7, LONG).close()
    assert world.calls == []
