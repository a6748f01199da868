"""Worker processes: one that dies takes its own episodes with it, and nothing outlives the server."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from service_samples import BRITTLE, REMAINING, Brittle, serving

from envs.service.homes import WorkerDied, WorldFailure
from envs.service.offers import Offer
from envs.service.processes import ProcessHome, WorkerEnvironment
from envs.service.schema import EpisodeQuestion
from envs.service.world import RemoteWorld
from turnwise.agent.host import Host, RetryPolicy
from turnwise.errors import WorldLost

TASKS = Brittle().tasks("test", 8)
REPOSITORY = Path(__file__).resolve().parents[3]


def at_home(work: Callable[[ProcessHome], Awaitable[None]], processes: int = 2) -> None:
    """Do something with a home of so many processes, which are gone after it."""

    async def life() -> list[int]:
        home = ProcessHome(BRITTLE, {}, processes)
        await home.start()
        try:
            await work(home)
        finally:
            pids = [worker._process.pid for worker in home._workers]
            await home.stop()
        return pids

    assert not any(map(alive, asyncio.run(life())))


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return "zombie" not in Path(f"/proc/{pid}/status").read_text()


async def opened(home: ProcessHome, number: int) -> WorkerEnvironment:
    environment = await home.open(TASKS[number], number)
    assert (await environment.reset()).text == "ready on 1 thread"
    return environment


async def pid(environment: WorkerEnvironment) -> int:
    return int((await environment.step("pid")).observation.text.split()[0])


def test_environments_are_spread_over_processes_and_places_are_given_back() -> None:
    async def work(home: ProcessHome) -> None:
        environments = [await opened(home, number) for number in range(4)]
        pids = [await pid(environment) for environment in environments]
        assert pids[0] == pids[2] != pids[1] == pids[3] and os.getpid() not in pids
        await environments[1].close()
        await environments[3].close()
        assert [await pid(await opened(home, number)) for number in (4, 5)] == [pids[1], pids[1]]

    at_home(work)


def test_a_process_that_dies_costs_its_own_environments_and_is_replaced() -> None:
    async def work(home: ProcessHome) -> None:
        environments = [await opened(home, number) for number in range(4)]
        pids = [await pid(environment) for environment in environments]
        with pytest.raises(WorkerDied, match="has ended, with status 7"):
            await environments[0].step("crash")
        for lost in (environments[0], environments[2]):
            with pytest.raises(WorkerDied, match="status 7"):
                await lost.step("count")
            await lost.close()
        for kept in (environments[1], environments[3]):
            assert (await kept.step("count")).observation.state == "1"
        again = [await pid(await opened(home, number)) for number in (5, 6)]
        assert not set(again) & set(pids)

    at_home(work)


def test_calls_that_are_under_way_fail_when_their_process_is_killed() -> None:
    async def work(home: ProcessHome) -> None:
        environment = await opened(home, 0)
        number = await pid(environment)
        hanging = asyncio.create_task(environment.step("hang"))
        await asyncio.sleep(0.05)
        assert not hanging.done()
        os.kill(number, signal.SIGKILL)
        with pytest.raises(WorkerDied, match="status -9"):
            await hanging

    at_home(work, processes=1)


def test_what_a_world_raises_and_prints_is_not_taken_for_an_answer() -> None:
    async def work(home: ProcessHome) -> None:
        environment = await opened(home, 0)
        assert (await environment.step("print")).valid
        with pytest.raises(WorldFailure, match="ConnectionError: no route"):
            await environment.step("raise")
        with pytest.raises(WorldFailure, match="SystemExit: 3"):
            await environment.step("exit")
        with pytest.raises(WorldFailure, match="ValueError: a task must be of this world"):
            await home.open(Brittle().tasks("test", 1)[0].__class__("w", "elsewhere", "test", 1), 0)
        decided = await environment.decide(EpisodeQuestion(baseline="oracle", remaining=REMAINING))
        assert decided.decision.actions == ("count",)

    at_home(work, processes=1)


def test_an_environment_that_is_given_up_while_it_is_made_holds_no_place() -> None:
    async def work(home: ProcessHome) -> None:
        opening = asyncio.create_task(home.open(TASKS[0], 0))
        while not home._workers[0].environments:
            await asyncio.sleep(0)
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        assert home._workers[0].environments == 0
        environment = await opened(home, 1)
        assert await pid(environment)

    at_home(work, processes=1)


def test_a_world_that_cannot_be_made_is_told_at_the_start() -> None:
    async def start() -> None:
        with pytest.raises(WorldFailure, match="RuntimeError: this world cannot be made"):
            await ProcessHome(BRITTLE, {"broken": True}, 2).start()

    asyncio.run(start())


SERVER = f"""
import asyncio
from envs.service.processes import ProcessHome

async def life():
    home = ProcessHome("{BRITTLE}", {{}}, 2)
    await home.start()
    print(*[worker._process.pid for worker in home._workers], flush=True)
    await asyncio.sleep(600)

asyncio.run(life())
"""


def test_workers_end_when_their_server_is_killed() -> None:
    paths = os.pathsep.join([str(REPOSITORY), str(REPOSITORY / "tests" / "envs" / "service")])
    with subprocess.Popen(
        [sys.executable, "-c", SERVER], stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": paths}
    ) as server:
        assert server.stdout is not None
        pids = [int(each) for each in server.stdout.readline().split()]
        assert len(pids) == 2 and all(map(alive, pids))
        server.kill()
    while any(map(alive, pids)):
        time.sleep(0.05)


def test_a_remote_world_plays_on_a_fresh_process_what_a_crash_has_lost() -> None:
    with serving(Offer(BRITTLE, processes=1)) as url:
        world = RemoteWorld(url=url, world=BRITTLE, version="3")
        tasks = world.tasks("test", 2)
        host = Host(world, tasks[0], 0, RetryPolicy(seconds=60, retries=1))
        other = Host(world, tasks[1], 0, RetryPolicy(seconds=60, retries=0))
        host.reset()
        other.reset()
        host.start(["count", "count"])
        before = host.finish()
        other.start(["crash"])  # both live in the one process
        with pytest.raises(WorldLost, match="503: the worker process of this episode has ended, with status 7"):
            other.finish()
        host.start(["count"])
        (after,) = host.finish()
        assert [step.observation.state for step in (*before, after)] == ["1", "2", "3"]
        host.close()
