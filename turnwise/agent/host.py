"""A host keeps one episode's environment alive through faults.

A world that raises or hangs is not the policy's failure. The host makes a fresh environment with the same task and
seed, plays the same actions again, checks that the world says the same, and goes on as if nothing had happened: the
policy's tokens do not depend on it. When the retries are spent the episode is `WorldLost`: missing data, never a
reward of zero.

Each environment lives on a thread of its own: a call that hangs can be abandoned (a thread cannot be stopped), and the
worlds of one engine step work side by side.
"""

from __future__ import annotations

import copy
import logging
import queue
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from turnwise.errors import WorldLost
from turnwise.world import Environment, Observation, Remaining, ScriptedAction, Step, Task, World

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class RetryPolicy:
    """How long a world may take for one call, and how often an episode is tried again."""

    seconds: float = 30.0
    retries: int = 2


Answer = queue.SimpleQueue[tuple[Any, BaseException | None]]
"""Where the result of one call, or what it raised, arrives."""


class _EnvironmentThread:
    """A daemon thread that makes one environment and runs its calls in order.

    One that hangs is abandoned: it does not keep the process alive, and closes its environment should it ever go on.
    """

    def __init__(self, world: World, task: Task, seed: int) -> None:
        self._make = partial(world.make, task, seed)
        self._name = f"world {world.name!r}, task {task.id!r}"
        self._calls: queue.SimpleQueue[tuple[Callable[[Environment], Any], Answer] | None] = queue.SimpleQueue()
        self.made: Answer = queue.SimpleQueue()
        threading.Thread(target=self._run, daemon=True, name="world").start()

    def start(self, call: Callable[[Environment], Any]) -> Answer:
        answer: Answer = queue.SimpleQueue()
        self._calls.put((call, answer))
        return answer

    def stop(self) -> None:
        """Close the environment once the calls that were started are done."""
        self._calls.put(None)

    def _run(self) -> None:
        try:
            environment = self._make()
        except BaseException as error:  # the world's boundary: whatever it raises, here and below, is its fault
            self.made.put((None, error))
            return
        self.made.put((None, None))
        while (item := self._calls.get()) is not None:
            call, answer = item
            try:
                answer.put((call(environment), None))
            except BaseException as error:
                answer.put((None, error))
        try:
            environment.close()
        except BaseException as error:  # it has given its data already
            logger.warning("%s failed to close: %s: %s", self._name, type(error).__name__, error)


class Host:
    """One episode of one task. Call `reset`, then `start` and `finish` for each turn, and `close` at the end."""

    def __init__(self, world: World, task: Task, seed: int, patience: RetryPolicy) -> None:
        self._world, self._task, self._seed, self._patience = world, task, seed, patience
        self._played: list[tuple[str, Step]] = []
        self._first: Observation | None = None
        self._attempts = 0
        self._pending: tuple[tuple[str, ...], Answer] | None = None
        self._thread: _EnvironmentThread | None = None

    def reset(self) -> Observation:
        """The first observation. Raises WorldLost when the world cannot be started within the retries."""
        first: Observation = self._persist(self._open, self._open)
        self._first = first
        return first

    def start(self, actions: Sequence[str]) -> None:
        """Begin to play the actions of one turn, in order; `finish` collects what the world says."""
        played = tuple(actions)
        self._pending = (played, self._start(partial(_play, played)))

    def finish(self) -> list[Step]:
        """The world's answers, up to the first that ends the episode or refuses an action. Raises WorldLost."""
        assert self._pending is not None, "start must be called before finish"
        actions, answer = self._pending
        self._pending = None
        steps: list[Step] = self._persist(lambda: self._await(answer), lambda: self._call(partial(_play, actions)))
        self._played += list(zip(actions, steps, strict=False))
        return steps

    def decide(self, player: str, generator: np.random.Generator, remaining: Remaining) -> ScriptedAction:
        """What a scripted player does now: see `Environment.decide`."""

        def ask() -> ScriptedAction:
            # Every attempt draws what the first would have drawn, from a generator that no abandoned one shares.
            own = copy.deepcopy(generator)
            decision: ScriptedAction = self._call(lambda environment: environment.decide(player, own, remaining))
            return decision

        decision: ScriptedAction = self._persist(ask, ask)
        return decision

    def close(self) -> None:
        """Free the environment. A world that fails to close has already given its data: that is logged, not raised."""
        self._discard()

    def _open(self) -> Observation:
        self._thread = _EnvironmentThread(self._world, self._task, self._seed)
        self._await(self._thread.made)
        first: Observation = self._call(lambda environment: environment.reset())
        return first

    def _replay(self) -> None:
        """Bring a fresh environment to the point that the lost one had reached."""
        if self._open() != self._first:
            raise RuntimeError("a fresh environment with the same task and seed gave another first observation")
        for action, before in self._played:
            if self._call(partial(_step, action)) != before:
                raise RuntimeError(f"replaying {action!r} on a fresh environment gave another result")

    def _start(self, call: Callable[[Environment], Any]) -> Answer:
        assert self._thread is not None, "reset must be called first"
        return self._thread.start(call)

    def _call(self, call: Callable[[Environment], Any]) -> Any:
        return self._await(self._start(call))

    def _await(self, answer: Answer) -> Any:
        try:
            value, error = answer.get(timeout=self._patience.seconds)
        except queue.Empty:
            raise TimeoutError(f"no answer within {self._patience.seconds:g} s") from None
        if isinstance(error, Exception):
            raise error
        if error is not None:  # a world that calls sys.exit must not end the run
            raise RuntimeError(f"the world raised {type(error).__name__}: {error}") from error
        return value

    def _persist(self, first: Callable[[], Any], again: Callable[[], Any]) -> Any:
        """`first`, and after a fault, on a fresh environment brought to the same point, `again`; until it succeeds."""
        faults = 0
        while True:
            try:
                if faults == 0:
                    return first()
                if self._first is None:
                    return self._open()
                self._replay()
                return again()
            except Exception as error:
                faults += 1
                self._attempts += 1
                self._discard()
                reason = f"{type(error).__name__}: {error}"
                if self._attempts > self._patience.retries:
                    raise WorldLost(
                        f"the world {self._world.name!r} lost task {self._task.id!r} after {self._attempts} attempts; "
                        f"the last error was {reason}"
                    ) from error
                logger.warning("world %r, task %r: %s; trying again", self._world.name, self._task.id, reason)

    def _discard(self) -> None:
        """Close the environment on its own thread without waiting: it may be the one that hangs."""
        if self._thread is not None:
            self._thread.stop()
            self._thread = None


def _step(action: str, environment: Environment) -> Step:
    return environment.step(action)


def _play(actions: tuple[str, ...], environment: Environment) -> list[Step]:
    steps: list[Step] = []
    for action in actions:
        steps.append(environment.step(action))
        if steps[-1].terminated or steps[-1].truncated or not steps[-1].valid:
            break
    return steps
