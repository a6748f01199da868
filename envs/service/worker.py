"""A worker process: `python -m envs.service.worker`, with orders on its standard input and answers on its output.

It is started afresh and never forked, so it shares no lock, no thread and no connection with the server. When the
server is gone its input ends, and it ends too.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import BinaryIO

from envs.service.homes import LiveEnvironment, WorldFailure
from envs.service.orders import AskOrder, Begin, Close, Failure, Make, Order, PlayOrder, WorkerAnswer
from envs.service.threads import ThreadHome
from turnwise.world import make_world

LONGEST_LINE = 2**28
"""Limit on a line, in bytes: far above what the limit on bodies admits, and below what would fill the memory."""


CLOSING_SECONDS = 5.0


class Work:
    """The environments of one worker."""

    def __init__(self, home: ThreadHome) -> None:
        self._home = home
        self._opening: dict[int, asyncio.Task[LiveEnvironment]] = {}

    async def answer(self, order: Order) -> WorkerAnswer:
        """Execute one order and return its answer."""
        try:
            return await self._carry_out(order)
        except WorldFailure as error:
            return WorkerAnswer(number=order.number, failure=Failure(kind=error.kind, message=error.message))

    async def close(self) -> None:
        """Close every open environment."""
        await asyncio.gather(*map(self._close, list(self._opening)), return_exceptions=True)

    async def _carry_out(self, order: Order) -> WorkerAnswer:
        number, what = order.number, order.what
        if isinstance(what, Close):
            await self._close(order.environment)
            return WorkerAnswer(number=number)
        if isinstance(what, Make):
            opening = asyncio.create_task(self._home.open(what.task, what.seed))
            self._opening[order.environment] = opening
            await opening
            return WorkerAnswer(number=number)
        live = await self._opening[order.environment]
        if isinstance(what, PlayOrder):
            return WorkerAnswer(number=number, step=await live.step(what.action))
        if isinstance(what, AskOrder):
            return WorkerAnswer(number=number, decided=await live.decide(what.question))
        return WorkerAnswer(number=number, observation=await live.reset())

    async def _close(self, environment: int) -> None:
        """Close an environment, also one that is still being made: the server may have given it up."""
        await (await self._opening.pop(environment)).close()


async def work() -> None:
    """Construct the world, then execute orders until the input ends."""
    incoming, answers = _take_over(sys.stdin.fileno(), sys.stdout.fileno())
    orders = asyncio.StreamReader(limit=LONGEST_LINE)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(orders), incoming)

    def tell(answer: WorkerAnswer) -> None:
        answers.write(answer.to_line())
        answers.flush()

    begin = Begin.model_validate_json(await orders.readline())
    try:
        world = make_world(begin.world, begin.parameters)
    except Exception as error:  # whatever a world raises is reported to the server, which then refuses to start
        tell(WorkerAnswer(number=0, failure=Failure(kind=type(error).__name__, message=str(error))))
        return
    tell(WorkerAnswer(number=0))
    await _carry_out_orders(Work(ThreadHome(world)), orders, tell)


async def _carry_out_orders(work: Work, orders: asyncio.StreamReader, tell: Callable[[WorkerAnswer], None]) -> None:
    async def carry_out(order: Order) -> None:
        tell(await work.answer(order))

    running: set[asyncio.Task[None]] = set()
    async with asyncio.TaskGroup() as tasks:
        while line := await orders.readline():
            task = tasks.create_task(carry_out(Order.model_validate_json(line)))
            running.add(task)
            task.add_done_callback(running.discard)
        for task in running:
            task.cancel()
    with suppress(TimeoutError):
        await asyncio.wait_for(work.close(), CLOSING_SECONDS)


def _take_over(incoming: int, outgoing: int) -> tuple[BinaryIO, BinaryIO]:
    """Take over both pipes: a library's prints go to standard error, and no library can read the orders."""
    orders, answers = os.fdopen(os.dup(incoming), "rb"), os.fdopen(os.dup(outgoing), "wb")
    os.dup2(os.open(os.devnull, os.O_RDONLY), incoming)
    os.dup2(sys.stderr.fileno(), outgoing)
    return orders, answers


if __name__ == "__main__":
    asyncio.run(work())
