"""Environments on threads of this process: one thread for each, as in the agent's host.

Waiting threads cost little; in a small pool a few slow episodes would stop all others.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import TypeVar

import numpy as np

from envs.service.generator_state import GeneratorState
from envs.service.homes import WorldFailure
from envs.service.plain import plain_decision, plain_observation, plain_step
from envs.service.schema import Decided, EpisodeQuestion
from turnwise.world import (
    Environment,
    EnvironmentThread,
    Observation,
    Step,
    Task,
    ValidatedEnvironment,
    World,
    running_future,
)

Result = TypeVar("Result")


def on_a_thread(work: Callable[[], Result]) -> Future[Result]:
    """Future with the result of work on its own daemon thread; an exception becomes a WorldFailure."""
    answer: Future[Result] = running_future()

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
        thread = EnvironmentThread(lambda: ValidatedEnvironment(self._world.make(task, seed), task), _failure)
        try:
            await asyncio.wrap_future(thread.creation)
        except BaseException:
            thread.close()  # in case the environment is made after all, once nobody waits for it
            raise
        return ThreadedEnvironment(thread)

    async def stop(self) -> None:
        """Nothing to stop: the threads end with their environments, or with the process."""


class ThreadedEnvironment:
    """An environment on its own thread."""

    def __init__(self, thread: EnvironmentThread) -> None:
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


def _failure(error: BaseException) -> WorldFailure:
    return WorldFailure(type(error).__name__, str(error))


def _decide(question: EpisodeQuestion, environment: Environment) -> Decided:
    generator = np.random.default_rng(0)  # the oracle draws nothing; any other policy's state replaces the seed
    if question.generator is not None:
        question.generator.put_into(generator)
    decision = environment.decide(question.baseline, generator, question.remaining)
    after = None if question.generator is None else GeneratorState.of(generator)
    return Decided(decision=plain_decision(decision), generator=after)
