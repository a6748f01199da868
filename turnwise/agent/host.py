"""A host keeps one episode's environment alive through faults.

A world that raises or hangs is not the policy's failure. The host makes a fresh environment with the same task and
seed, plays the same actions again, checks that the world says the same, and goes on as if nothing had happened: the
policy's tokens do not depend on it. When the retries are spent the episode is `WorldLost`: missing data, never a
reward of zero.

Each environment lives on a thread of its own: a call that hangs can be abandoned (a thread cannot be stopped), and the
worlds of one engine step work side by side.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from turnwise.errors import WorldLost
from turnwise.world import Decision, Environment, Observation, Remaining, Step, Task, World

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Patience:
    """How long a world may take for one call, and how often an episode is tried again."""

    seconds: float = 30.0
    retries: int = 2


class _EnvironmentThread:
    """A daemon thread that runs calls in order. One that hangs is abandoned; it does not keep the process alive."""

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[tuple[Callable[[], Any], queue.SimpleQueue[tuple[Any, Exception | None]]] | None]
        self._calls = queue.SimpleQueue()
        threading.Thread(target=self._run, daemon=True, name="world").start()

    def _run(self) -> None:
        while (item := self._calls.get()) is not None:
            call, answer = item
            try:
                answer.put((call(), None))
            except Exception as error:  # the world's boundary: whatever it raises is a fault of the world
                answer.put((None, error))

    def start(self, call: Callable[[], Any]) -> queue.SimpleQueue[tuple[Any, Exception | None]]:
        answer: queue.SimpleQueue[tuple[Any, Exception | None]] = queue.SimpleQueue()
        self._calls.put((call, answer))
        return answer

    def stop(self) -> None:
        self._calls.put(None)


class Host:
    """One episode of one task. Call `reset`, then `start` and `finish` for each turn, and `close` at the end."""

    def __init__(self, world: World, task: Task, seed: int, patience: Patience) -> None:
        self._world, self._task, self._seed, self._patience = world, task, seed, patience
        self._played: list[tuple[str, Step]] = []
        self._first: Observation | None = None
        self._attempts = 0
        self._pending: tuple[tuple[str, ...], queue.SimpleQueue[tuple[Any, Exception | None]]] | None = None

    def reset(self) -> Observation:
        """The first observation. Raises WorldLost when the world cannot be started within the retries."""
        first: Observation = self._persist(self._open, self._open)
        self._first = first
        return first

    def start(self, actions: Sequence[str]) -> None:
        """Begin to play the actions of one turn, in order; `finish` collects what the world says."""
        played = tuple(actions)
        self._pending = (played, self._thread.start(lambda: self._play(played)))

    def finish(self) -> list[Step]:
        """The world's answers, up to the first that ends the episode or refuses an action. Raises WorldLost."""
        assert self._pending is not None, "start must be called before finish"
        actions, answer = self._pending
        self._pending = None
        steps: list[Step] = self._persist(lambda: self._await(answer), lambda: self._call(lambda: self._play(actions)))
        self._played += list(zip(actions, steps, strict=False))
        return steps

    def decide(self, player: str, generator: np.random.Generator, remaining: Remaining) -> Decision:
        """What a scripted player does now: see `Environment.decide`."""
        state = generator.bit_generator.state

        def decide() -> Decision:
            generator.bit_generator.state = state  # a second attempt draws what the first would have drawn
            return self._environment.decide(player, generator, remaining)

        decision: Decision = self._persist(lambda: self._call(decide), lambda: self._call(decide))
        return decision

    def close(self) -> None:
        """Free the environment. A world that fails to close has already given its data: that is logged, not raised."""
        if hasattr(self, "_environment"):
            self._discard()

    def _open(self) -> Observation:
        self._thread = _EnvironmentThread()
        self._environment: Environment = self._call(lambda: self._world.make(self._task, self._seed))
        return self._call(self._environment.reset)

    def _play(self, actions: tuple[str, ...]) -> list[Step]:
        steps: list[Step] = []
        for action in actions:
            steps.append(self._environment.step(action))
            if steps[-1].terminated or steps[-1].truncated or not steps[-1].valid:
                break
        return steps

    def _replay(self) -> None:
        """Bring a fresh environment to the point that the lost one had reached."""
        if self._open() != self._first:
            raise RuntimeError("a fresh environment with the same task and seed gave another first observation")
        for action, before in self._played:
            if self._call(partial(self._environment.step, action)) != before:
                raise RuntimeError(f"replaying {action!r} on a fresh environment gave another result")

    def _call(self, call: Callable[[], Any]) -> Any:
        return self._await(self._thread.start(call))

    def _await(self, answer: queue.SimpleQueue[tuple[Any, Exception | None]]) -> Any:
        try:
            value, error = answer.get(timeout=self._patience.seconds)
        except queue.Empty:
            raise TimeoutError(f"no answer within {self._patience.seconds:g} s") from None
        if error is not None:
            raise error
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
        thread = self._thread
        environment = self.__dict__.pop("_environment", None)
        if environment is not None:
            thread.start(environment.close)
        thread.stop()
