"""Environments in worker processes: for worlds that are heavy, or that may crash their process.

An environment goes to the process with the fewest. A process that dies takes only its own environments with it: their
calls raise WorkerDied, and the next environment that is opened starts a new process in its place.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from envs.service.homes import WorkerDied, WorldFailure
from envs.service.orders import AskOrder, Begin, Close, Make, Order, PlayOrder, Reset, WorkerAnswer
from envs.service.schema import Decided, EpisodeQuestion
from envs.service.worker import CLOSING_SECONDS, LONGEST_LINE
from turnwise.world import Observation, Step, Task

KILL_AFTER_SECONDS = 2 * CLOSING_SECONDS
ENDING_SECONDS = 1.0
"""Seconds that a process may take to end after its output has ended."""

What = Make | Reset | PlayOrder | AskOrder | Close


class ProcessHome:
    """Keeps the environments of one world in `processes` worker processes."""

    def __init__(self, world: str, parameters: Mapping[str, Any], processes: int) -> None:
        self._begin = Begin(world=world, parameters=dict(parameters))
        self._processes = processes
        self._workers: list[Worker] = []
        self._changing = asyncio.Lock()

    async def start(self) -> None:
        """Start every process. Raises WorldFailure if the world cannot be made in one."""
        self._workers = list(await asyncio.gather(*(Worker.start(self._begin) for _ in range(self._processes))))

    async def open(self, task: Task, seed: int) -> WorkerEnvironment:
        """A new environment in the process with the fewest. Raises WorldFailure or WorkerDied."""
        async with self._changing:
            for place, worker in enumerate(self._workers):
                if not worker.alive:
                    self._workers[place] = await Worker.start(self._begin)
            idlest = min(self._workers, key=lambda worker: worker.environments)
            idlest.environments += 1
        environment = WorkerEnvironment(idlest)
        try:
            await environment.ask(Make(task=task, seed=seed))
        except BaseException:
            environment.give_up()
            raise
        return environment

    async def stop(self) -> None:
        """End every process."""
        await asyncio.gather(*(worker.stop() for worker in self._workers))


class WorkerEnvironment:
    """An environment in a worker process."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._number = next(worker.numbers)

    async def ask(self, what: What) -> WorkerAnswer:
        """The worker's answer to one order."""
        return await self._worker.ask(self._number, what)

    async def reset(self) -> Observation:
        """The first observation. Raises WorldFailure or WorkerDied, as do the methods below."""
        observation = (await self.ask(Reset())).observation
        assert observation is not None, "a reset is answered with an observation"
        return observation

    async def step(self, action: str) -> Step:
        """The world's step."""
        step = (await self.ask(PlayOrder(action=action))).step
        assert step is not None, "a step is answered with a step"
        return step

    async def decide(self, question: EpisodeQuestion) -> Decided:
        """Action of a baseline policy, and the state of its generator."""
        answer = (await self.ask(AskOrder(question=question))).decided
        assert answer is not None, "a question is answered with a decision"
        return answer

    async def close(self) -> None:
        """Close the environment; if its process has died, there is nothing to close."""
        self._worker.environments -= 1
        with suppress(WorkerDied):
            await self.ask(Close())

    def give_up(self) -> None:
        """Have the environment closed once it has been made, without waiting."""
        self._worker.environments -= 1
        self._worker.order(self._number, Close())


class Worker:
    """One worker process, as the server sees it."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._waiting: dict[int, asyncio.Future[WorkerAnswer]] = {}
        self._orders = itertools.count(1)
        self._listening: asyncio.Task[None] | None = None
        self.numbers = itertools.count(1)
        """Numbers for its environments."""
        self.environments = 0
        """Number of environments that it holds."""
        self.alive = True

    @classmethod
    async def start(cls, begin: Begin) -> Worker:
        """A new process with its world constructed. Raises WorldFailure, or WorkerDied if it ends at once."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "envs.service.worker"),
            stdin=PIPE,
            stdout=PIPE,
            limit=LONGEST_LINE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},  # it finds whatever world the server finds
            start_new_session=True,  # Ctrl-C in a terminal is for the server, which ends its workers in order
        )
        worker = cls(process)
        ready = worker._wait_for(0)
        worker._listening = asyncio.create_task(worker._listen())
        worker._write(begin.to_line())
        try:
            await ready
        except BaseException:
            with suppress(ProcessLookupError):  # report why it did not begin, not that it is gone
                process.kill()
            raise
        return worker

    async def ask(self, environment: int, what: What) -> WorkerAnswer:
        """The answer to one order. Raises WorldFailure or WorkerDied."""
        return await self.order(environment, what)

    def order(self, environment: int, what: What) -> asyncio.Future[WorkerAnswer]:
        """Send one order; the future resolves to its answer."""
        number = next(self._orders)
        answer = self._wait_for(number)
        self._write(Order(number=number, environment=environment, what=what).to_line())
        return answer

    async def stop(self) -> None:
        """End the process: it closes its environments, or is killed after `KILL_AFTER_SECONDS`."""
        assert self._process.stdin is not None and self._listening is not None
        self._process.stdin.close()
        try:
            await asyncio.wait_for(self._process.wait(), KILL_AFTER_SECONDS)
        except TimeoutError:
            self._process.kill()
            await self._process.wait()
        await self._listening

    def _wait_for(self, number: int) -> asyncio.Future[WorkerAnswer]:
        answer: asyncio.Future[WorkerAnswer] = asyncio.get_running_loop().create_future()
        # Retrieve the exception, so that asyncio does not report one for which nobody waits any longer.
        answer.add_done_callback(lambda done: done.cancelled() or done.exception())
        if self.alive:
            self._waiting[number] = answer
        else:
            answer.set_exception(self._death())
        return answer

    def _write(self, line: bytes) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line)

    async def _listen(self) -> None:
        """Distribute answers until the process ends."""
        assert self._process.stdout is not None
        try:
            while (line := await self._process.stdout.readline()).endswith(b"\n"):
                self._hand_out(WorkerAnswer.model_validate_json(line))
        finally:
            self.alive = False
            # Wait first for one that has ended: a signal would take its exit status before asyncio sees it.
            try:
                await asyncio.wait_for(self._process.wait(), ENDING_SECONDS)
            except TimeoutError:  # it still runs: its output was unreadable
                with suppress(ProcessLookupError):
                    self._process.kill()
                await self._process.wait()
            for waiting in self._waiting.values():
                if not waiting.done():
                    waiting.set_exception(self._death())
            self._waiting.clear()

    def _hand_out(self, answer: WorkerAnswer) -> None:
        waiting = self._waiting.pop(answer.number)
        if waiting.done():
            return
        if answer.failure is None:
            waiting.set_result(answer)
        else:
            waiting.set_exception(WorldFailure(answer.failure.kind, answer.failure.message))

    def _death(self) -> WorkerDied:
        return WorkerDied(f"the worker process of this episode has ended, with status {self._process.returncode}")
