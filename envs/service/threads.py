"""Environments on threads of this process: one thread for each, as the agent's host does it.

A world may rely on being called from one thread, and a call that hangs must cost its own episode only. Threads that
wait cost little; a pool of few would let a few slow episodes stop all others.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any, TypeVar

import numpy as np

from envs.service.generator_state import GeneratorState
from envs.service.homes import WorldFailure
from envs.service.plain import plain_decision, plain_observation, plain_step
from envs.service.schema import Decided, EpisodeQuestion
from turnwise.world import Environment, Observation, Step, Task, World

Result = TypeVar("Result")


def on_a_thread(work: Callable[[], Result]) -> Future[Result]:
    """What comes of work on a daemon thread of its own; what it raises is a WorldFailure."""
    answer: Future[Result] = _running_future()

    def run() -> None:
        try:
            answer.set_result(work())
        except BaseException as error:  # the world's boundary: whatever it raises is its fault
            answer.set_exception(_failure(error))

    threading.Thread(target=run, daemon=True, name="world").start()
    return answer


class ThreadHome:
    """Keeps the environments of one world on threads."""

    def __init__(self, world: World) -> None:
        self._world = world

    async def start(self) -> None:
        """Nothing is to be made ready."""

    async def open(self, task: Task, seed: int) -> ThreadedEnvironment:
        """A new environment on a new thread. Raises WorldFailure."""
        thread = _EnvironmentThread(partial(self._world.make, task, seed))
        try:
            await asyncio.wrap_future(thread.made)
        except BaseException:
            thread.close()  # should a world that was given up be made after all
            raise
        return ThreadedEnvironment(thread)

    async def stop(self) -> None:
        """The threads end with their environments, or with the process."""


class ThreadedEnvironment:
    """An environment on its thread."""

    def __init__(self, thread: _EnvironmentThread) -> None:
        self._thread = thread

    async def reset(self) -> Observation:
        """The first observation. Raises WorldFailure, here and below."""
        return await asyncio.wrap_future(self._thread.call(lambda environment: plain_observation(environment.reset())))

    async def step(self, action: str) -> Step:
        """The world's answer."""
        return await asyncio.wrap_future(self._thread.call(lambda environment: plain_step(environment.step(action))))

    async def decide(self, question: EpisodeQuestion) -> Decided:
        """The player's decision."""
        return await asyncio.wrap_future(self._thread.call(partial(_decide, question)))

    async def close(self) -> None:
        """Close the environment on its thread, which ends."""
        await asyncio.wrap_future(self._thread.close())


class _EnvironmentThread:
    """A daemon thread that makes one environment, runs its calls in order, and closes it."""

    def __init__(self, make: Callable[[], Environment]) -> None:
        self._calls: queue.SimpleQueue[tuple[Callable[[Environment], Any], Future[Any]]] = queue.SimpleQueue()
        self.made: Future[None] = _running_future()
        threading.Thread(target=self._run, args=(make,), daemon=True, name="world").start()

    def call(self, work: Callable[[Environment], Result]) -> Future[Result]:
        answer: Future[Result] = _running_future()
        self._calls.put((work, answer))
        return answer

    def close(self) -> Future[None]:
        closed: Future[None] = _running_future()
        self._calls.put((_close, closed))
        return closed

    def _run(self, make: Callable[[], Environment]) -> None:
        try:
            environment = make()
        except BaseException as error:  # the world's boundary: whatever it raises, here and below, is its fault
            self.made.set_exception(_failure(error))
            return
        self.made.set_result(None)
        while True:
            work, answer = self._calls.get()
            try:
                answer.set_result(work(environment))
            except BaseException as error:
                answer.set_exception(_failure(error))
            if work is _close:
                return


def _running_future() -> Future[Any]:
    """A future that its thread will fulfil, also when nobody waits any longer."""
    future: Future[Any] = Future()
    future.set_running_or_notify_cancel()
    return future


def _failure(error: BaseException) -> WorldFailure:
    return WorldFailure(type(error).__name__, str(error))


def _close(environment: Environment) -> None:
    environment.close()


def _decide(question: EpisodeQuestion, environment: Environment) -> Decided:
    generator = np.random.default_rng(0)  # the oracle draws nothing; any other player's state is put in its place
    if question.generator is not None:
        question.generator.put_into(generator)
    decision = environment.decide(question.player, generator, question.remaining)
    after = None if question.generator is None else GeneratorState.of(generator)
    return Decided(decision=plain_decision(decision), generator=after)
