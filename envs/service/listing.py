"""A world's tasks: listed on threads, one question at a time, and returned in pages.

Listing tasks may take minutes, since a world may have to make every board. So each world has a lock of its own, no
reply is larger than a page, and the list is cached: the second page costs nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from envs.service.homes import WorldFailure
from envs.service.reasons import Reason, Refusal
from envs.service.schema import LISTING_SECONDS, MOST_TASKS
from envs.service.threads import on_a_thread
from turnwise.world import Limits, Split, Task, World

Answer = TypeVar("Answer")


class Listing:
    """Asks one world about its tasks. Every method raises Refusal if the world refuses, fails, or takes too long.

    A world need not support two threads at once, so questions wait for one another. A list that is ready too late for
    its request is still cached, for the next one.
    """

    def __init__(self, world: World, seconds: float = LISTING_SECONDS) -> None:
        self._world = world
        self._seconds = seconds
        self._asking = asyncio.Lock()
        self._longest: dict[Split, list[Task]] = {}

    async def page(self, split: Split, count: int, offset: int, limit: int) -> list[Task]:
        """Of the first `count` tasks of a split, at most `limit` from `offset` on."""
        if count > MOST_TASKS:
            raise Refusal(Reason.TASK_REFUSED, f"count must be at most {MOST_TASKS}; found {count}")
        listed = self._longest.get(split, [])
        if len(listed) < count or not listed:
            listed = await self._ask(partial(self._list, split, count))
        return listed[offset : min(offset + limit, count)]

    async def limits_of(self, task: Task) -> Limits:
        """Limits under which a task is meant to be played."""
        return await self._ask(partial(self._world.limits_of, task))

    def _list(self, split: Split, count: int) -> list[Task]:
        """The longest list made so far, of at least `count` tasks."""
        known = self._longest.get(split, [])
        if len(known) < count or not known:
            known = self._longest[split] = self._world.tasks(split, count)
        return known

    async def _ask(self, question: Callable[[], Answer]) -> Answer:
        try:
            async with asyncio.timeout(self._seconds):
                await self._asking.acquire()
                answer = asyncio.wrap_future(on_a_thread(question))
                # Attached also when nobody waits any longer: until the answer comes the world is busy.
                answer.add_done_callback(self._answered)
                return await asyncio.shield(answer)
        except TimeoutError:
            message = f"the world must answer within {self._seconds:g} s what it is asked of its tasks; it did not"
            raise Refusal(Reason.WORLD_HUNG, message) from None
        except WorldFailure as error:
            refused = error.kind == "ValueError"
            raise Refusal(
                Reason.TASK_REFUSED if refused else Reason.WORLD_FAILED, error.message if refused else str(error)
            ) from error

    def _answered(self, answer: asyncio.Future[Answer]) -> None:
        self._asking.release()
        answer.exception()  # retrieved, so that asyncio does not report it as unhandled
