"""What the library is asked, in its two forms: environments of version 0.1, and task sets of version 0.4.

Both have rows of tasks and a rollout that asks a model at an address; else they share nothing.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.metadata
import itertools
import os
import threading
from collections.abc import Coroutine, Mapping
from concurrent.futures import Future
from functools import cache
from typing import Any, Protocol

from envs.verifiers.endpoint import Exchange, Scored

HARNESS = "turnwise_harness"
"""The module as which `harness` is installed."""
KEY_VARIABLE = "TURNWISE_VERIFIERS_KEY"
"""The library wants a key from an environment variable; the endpoint asks for none."""


class Library(Protocol):
    """An environment that is loaded, in either form."""

    @property
    def size(self) -> int | None:
        """The number of its tasks; None where they have no end."""

    def row(self, number: int) -> Mapping[str, Any]:
        """A task's fields, by its place. Raises IndexError where there is none."""

    async def play(self, number: int, exchange: Exchange) -> Scored:
        """Roll a task out against the exchange's endpoint, and score it."""


def load(environment: str, arguments: Mapping[str, Any]) -> Library:
    """An environment by the module that holds it, or `module:function`.

    Raises ValueError where it cannot be imported, or not made with these arguments.
    """
    os.environ.setdefault(KEY_VARIABLE, "none")
    version = importlib.metadata.version("verifiers")
    try:
        return Environments(environment, arguments) if version.startswith("0.1.") else TaskSets(environment, arguments)
    except Exception as error:  # whatever somebody else's module raises when it is imported or called
        raise ValueError(
            f"environment must be one that verifiers {version} loads (for one of version 0.1 add the requirement "
            f"verifiers<0.2); {environment!r} with {dict(arguments)} fails with {type(error).__name__}: {error}"
        ) from error


class Environments:
    """Version 0.1: `load_environment` of a module returns an environment with a data set and a rubric."""

    def __init__(self, environment: str, arguments: Mapping[str, Any]) -> None:
        module, _, function = environment.partition(":")
        self._environment = getattr(importlib.import_module(module), function or "load_environment")(**arguments)
        self._rows = self._environment.get_dataset()
        self.size: int | None = len(self._rows)

    def row(self, number: int) -> Mapping[str, Any]:
        """A row of the training set."""
        return {"example_id": number, **self._rows[number]}

    async def play(self, number: int, exchange: Exchange) -> Scored:
        """One rollout, scored by the rubric."""
        from openai import AsyncOpenAI
        from verifiers.clients import OpenAIChatCompletionsClient

        client = AsyncOpenAI(base_url=exchange.url, api_key="none", max_retries=0, timeout=None)
        rollout = await self._environment.run_rollout(
            self.row(number), OpenAIChatCompletionsClient(client), "policy", {}
        )
        return Scored(
            float(rollout["reward"]),
            _numbers(rollout.get("metrics") or {}),
            truncated=bool(rollout.get("is_truncated")),
            failure=str(rollout.get("error") or ""),
        )


class TaskSets:
    """Version 0.4: a task set, played by one seat."""

    def __init__(self, environment: str, arguments: Mapping[str, Any]) -> None:
        from verifiers.v1.utils.loaders import load_environment, resolve_env_config

        configuration = {"taskset": {"id": environment, **arguments}}
        role = next(iter(resolve_env_config(configuration).agent_harnesses()))
        seat = {"harness": {"id": HARNESS}, "runtime": {"type": "subprocess"}}  # not a container of a cloud
        self._environment = load_environment(resolve_env_config({**configuration, role: seat}))
        self._unread = iter(self._environment.taskset)
        self._loaded_tasks: list[Any] = []
        self.size = None if self._environment.taskset.INFINITE else len(self._tasks(None))
        self._serving: Future[None] | None = None

    def row(self, number: int) -> Mapping[str, Any]:
        """A task's data."""
        data: Mapping[str, Any] = self._tasks(number + 1)[number].data.model_dump()
        return data

    async def play(self, number: int, exchange: Exchange) -> Scored:
        """One episode. The reward is the sum over its traces."""
        from verifiers.v1.clients import EvalClientConfig, ModelContext

        await self._served()
        context = ModelContext("policy", EvalClientConfig(base_url=exchange.url, api_key_var=KEY_VARIABLE))
        episode = await self._environment.run_episode(self._tasks(number + 1)[number], context)
        errors = [*episode.errors, *(error for trace in episode.traces for error in trace.errors)]
        rewards = {
            name: each.score for trace in episode.traces for name, each in trace.rewards.items() if each is not None
        }
        return Scored(
            float(sum(trace.reward for trace in episode.traces)),
            _numbers(rewards),
            failure="; ".join(f"{error.type}: {error.message}" for error in errors),
        )

    def _tasks(self, count: int | None) -> list[Any]:
        more = None if count is None else max(count - len(self._loaded_tasks), 0)
        self._loaded_tasks += itertools.islice(self._unread, more)
        return self._loaded_tasks

    async def _served(self) -> None:
        """Start what the library serves to its episodes, once, for as long as this process lives."""
        if self._serving is None:
            serving: Future[None] = Future()
            self._serving = serving
            try:
                await self._environment.serving().__aenter__()
            except BaseException as error:
                self._serving = None  # the next episode tries again
                serving.set_exception(error)
                raise
            serving.set_result(None)
        await asyncio.wrap_future(self._serving)


def in_background(work: Coroutine[Any, Any, None]) -> Future[None]:
    """Run on the loop on which all rollouts run. Cancelling the future cancels the rollout."""
    return asyncio.run_coroutine_threadsafe(work, _loop())


@cache
def _loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="verifiers rollouts", daemon=True).start()
    return loop


def _numbers(metrics: Mapping[str, Any]) -> dict[str, float]:
    return {name: float(value) for name, value in metrics.items() if isinstance(value, (int, float))}
