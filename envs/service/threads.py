"""Environments on threads of this process: one thread for each, as in the agent's host.

A world may rely on being called from one thread, and a call that hangs must cost only its own episode. Waiting threads
cost little; in a small pool a few slow episodes would stop all others.
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
from turnwise.world import Environment, Observation, Step, Task, ValidatedEnvironment, World

Result = TypeVar("Result")


def on_a_thread(work: Callable[[], Result]) -> Future[Result]:
    """Future with the result of work on its own daemon thread; an exception becomes a WorldFailure."""
    answer: Future[Result] = _running_future()

    def run() -> None:
        try:
            answer.set_result(work())
        except BaseException as error:  # the world's boundary: any exception is the world's failure
            answer.set_exception(_failure(error))

    threading.Thread(target=run, daemon=True, name="world").start()
    return answer


class ThreadHome:
    """Keeps the environments of one world on threads."""

    def __init__(self, world: World) -> None:
        self._world = world

    async def start(self) -> None:
        """Nothing to prepare."""

    async def open(self, task: Task, seed: int) -> ThreadedEnvironment:
        """A new environment on a new thread. Raises WorldFailure."""
        thread = _EnvironmentThread(lambda: ValidatedEnvironment(self._world.make(task, seed), task))
        try:
            await asyncio.wrap_future(thread.made)
        except BaseException:
            thread.close()  # in case the environment is made after all, once nobody waits for it
            raise
        return ThreadedEnvironment(thread)

    async def stop(self) -> None:
        """Nothing to stop: the threads end with their environments, or with the process."""


class ThreadedEnvironment:
    """An environment on its own thread."""

    def __init__(self, thread: _EnvironmentThread) -> None:
        self._thread = thread

    async def reset(self) -> Observation:
        """The first observation. Raises WorldFailure, as do the methods below."""
        return await asyncio.wrap_future(self._thread.call(lambda environment: plain_observation(environment.reset())))

    async def step(self, action: str) -> Step:
        """The world's step."""
        return await asyncio.wrap_future(self._thread.call(lambda environment: plain_step(environment.step(action))))

    async def decide(self, question: EpisodeQuestion) -> Decided:
        """Action of a baseline policy, and the state of its generator."""
        return await asyncio.wrap_future(self._thread.call(partial(_decide, question)))

    async def close(self) -> None:
        """Close the environment on its thread, which then ends."""
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
        except BaseException as error:  # the world's boundary: any exception, also below, is the world's failure
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
    """A future that its thread will resolve, also when nobody waits any longer."""
    future: Future[Any] = Future()
    future.set_running_or_notify_cancel()
    return future


def _failure(error: BaseException) -> WorldFailure:
    return WorldFailure(type(error).__name__, str(error))


def _close(environment: Environment) -> None:
    environment.close()


def _decide(question: EpisodeQuestion, environment: Environment) -> Decided:
    generator = np.random.default_rng(0)  # the oracle draws nothing; any other policy's state replaces the seed
    if question.generator is not None:
        question.generator.put_into(generator)
    decision = environment.decide(question.baseline, generator, question.remaining)
    after = None if question.generator is None else GeneratorState.of(generator)
    return Decided(decision=plain_decision(decision), generator=after)
