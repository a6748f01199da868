"""Hosts: run one episode's environment and recover from its faults by replay.

A world that raises or hangs is not the policy's failure. The host makes a fresh environment with the same task and
seed, replays the same actions, checks that the world gives the same results, and continues: the policy's tokens do not
depend on the fault. When the retries are used up, `WorldLost` is raised and the episode is missing data, never a reward
of zero. An answer that breaks the contract is no fault of this kind: `ContractError` is raised at once.

An environment whose calls may block runs on its own thread, because a call that hangs can then be abandoned (a thread
cannot be stopped), and the worlds of one engine step run concurrently. One that never blocks (`World.blocks`) runs on
the thread of its caller: handing a call to another thread costs more than a small world's step.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from operator import methodcaller
from typing import Any, TypeVar

import numpy as np

from turnwise.errors import ContractError, WorldLost, raised_at
from turnwise.world import (
    Environment,
    EnvironmentThread,
    Observation,
    Remaining,
    ScriptedAction,
    Step,
    Task,
    ValidatedEnvironment,
    World,
    running_future,
)

logger = logging.getLogger(__name__)
Answer = TypeVar("Answer")


@dataclass(frozen=True)
class RetryPolicy:
    """Time limit of one call to a world, and the number of retries of an episode."""

    seconds: float = 30.0
    """Time limit of one call."""
    retries: int = 2
    """Retries of an environment over all its calls; each one replays the attempt from its start."""


class _EnvironmentHere:
    """Makes one environment and runs its calls at once on the caller's thread; in place of `EnvironmentThread`."""

    def __init__(self, make: Callable[[], Environment]) -> None:
        self._environment: list[Environment] = []
        self.creation = self._answer(lambda: self._environment.append(make()))

    def call(self, work: Callable[[Environment], Any]) -> Future[Any]:
        return self._answer(lambda: work(self._environment[0]))

    def close(self) -> Future[Any]:
        return self._answer(lambda: list(map(methodcaller("close"), self._environment)))

    def _answer(self, work: Callable[[], Any]) -> Future[Any]:
        answer = running_future()
        try:
            answer.set_result(work())
        except KeyboardInterrupt:  # the user's, not the world's
            raise
        except BaseException as error:  # boundary to the world's code: anything it raises is a fault
            answer.set_exception(error)
        return answer


class Host:
    """One episode of one task. Call `reset`, then `start` and `finish` for each turn, and `close` at the end."""

    def __init__(self, world: World, task: Task, seed: int, patience: RetryPolicy) -> None:
        self._world, self._task, self._seed, self._patience = world, task, seed, patience
        self._history: list[tuple[str, Step]] = []
        self._first: Observation | None = None
        self._attempts = 0
        self._pending: tuple[tuple[str, ...], Future[Any]] | None = None
        self._runner: EnvironmentThread | _EnvironmentHere | None = None

    def reset(self) -> Observation:
        """The first observation. Raises WorldLost if the world cannot be started within the retries."""
        self._first = first = self._persist(self._open, self._open)
        return first

    def start(self, actions: Sequence[str]) -> None:
        """Start the actions of one turn, in order, without waiting; `finish` collects the steps."""
        turn_actions = tuple(actions)
        self._pending = (turn_actions, self._start(partial(_play, turn_actions)))

    def finish(self) -> list[Step]:
        """The steps of the started actions, up to the first that ends the episode or refuses an action.

        Raises WorldLost when the retries are used up.
        """
        assert self._pending is not None, "start must be called before finish"
        actions, answer = self._pending
        self._pending = None
        steps = self._persist(lambda: self._await(answer), lambda: self._call(partial(_play, actions)))
        self._history += list(zip(actions, steps, strict=False))
        return steps

    def decide(self, baseline: str, generator: np.random.Generator, remaining: Remaining) -> ScriptedAction:
        """The scripted action of `baseline` at this point, see `Environment.decide`. Raises WorldLost."""

        def ask() -> ScriptedAction:
            # Each retry draws the same numbers from its own copy; an abandoned thread may still use an earlier copy.
            own = copy.deepcopy(generator)
            return self._call(lambda environment: environment.decide(baseline, own, remaining))

        return self._persist(ask, ask)

    def close(self) -> None:
        """Close the environment; where it has its own thread without waiting, since that thread may hang.

        A failure to close is logged, not raised: the episode's data is already complete.
        """
        if self._runner is not None:
            self._runner.close().add_done_callback(self._log_failure_to_close)
            self._runner = None

    def _open(self) -> Observation:
        run = EnvironmentThread if self._world.blocks else _EnvironmentHere
        self._runner = run(lambda: ValidatedEnvironment(self._world.make(self._task, self._seed), self._task))
        self._await(self._runner.creation)
        return self._call(methodcaller("reset"))

    def _replay(self) -> None:
        """Bring a fresh environment to the state that the lost one had reached.

        Raises RuntimeError if the world does not repeat what it did: the episode cannot be continued then.
        """
        if self._open() != self._first:
            raise RuntimeError("a fresh environment with the same task and seed gave another first observation")
        for action, before in self._history:
            if self._call(methodcaller("step", action)) != before:
                raise RuntimeError(f"replaying {action!r} on a fresh environment gave another result")

    def _start(self, call: Callable[[Environment], Answer]) -> Future[Answer]:
        assert self._runner is not None, "reset must be called first"
        return self._runner.call(call)

    def _call(self, call: Callable[[Environment], Answer]) -> Answer:
        return self._await(self._start(call))

    def _await(self, answer: Future[Answer]) -> Answer:
        try:
            error = answer.exception(self._patience.seconds)
        except TimeoutError:
            raise TimeoutError(f"no answer within {self._patience.seconds:g} s") from None
        if isinstance(error, Exception):
            raise error
        if error is not None:  # a world that calls sys.exit must not end the run
            raise RuntimeError(f"the world raised {type(error).__name__}: {error}") from error
        return answer.result()

    def _persist(self, first: Callable[[], Answer], retry: Callable[[], Answer]) -> Answer:
        """The result of `first`; after a fault, of `retry` on a fresh environment replayed to the same state.

        Raises WorldLost when the retries are used up, and ContractError at once.
        """
        faults = 0
        while True:
            try:
                if faults == 0:
                    return first()
                if self._first is not None:
                    self._replay()
                return retry()
            except ContractError:  # a mistake in the world, which another attempt would repeat
                self.close()
                raise
            except Exception as error:
                faults += 1
                self._attempts += 1
                self.close()
                reason = f"{type(error).__name__}: {error}"
                if self._attempts > self._patience.retries:
                    raise WorldLost(
                        f"the world {self._world.name!r} lost task {self._task.id!r} after {self._attempts} attempts; "
                        f"the last error was {reason}",
                        "TW-world-lost",
                    ) from error
                place = raised_at(error)
                logger.warning(
                    "world %r, task %r: %s%s; trying again",
                    self._world.name,
                    self._task.id,
                    reason,
                    f" ({place})" if place else "",
                )

    def _log_failure_to_close(self, closed: Future[Any]) -> None:
        if (error := closed.exception()) is not None:
            name = f"world {self._world.name!r}, task {self._task.id!r}"
            logger.warning("%s failed to close: %s: %s", name, type(error).__name__, error)


def _play(actions: tuple[str, ...], environment: Environment) -> list[Step]:
    steps: list[Step] = []
    for action in actions:
        steps.append(environment.step(action))
        if steps[-1].terminated or steps[-1].truncated or not steps[-1].valid:
            break
    return steps
