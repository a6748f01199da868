"""A load test of the service: 256 episodes at once, clients that vanish, and steps that are sent twice.

A server of its own process, 256 threads here that play through `RemoteWorld`, as the agent's hosts do. Every eighth
client leaves in the middle without a word; every seventh step is sent twice. All answers are compared with the local
world's. Printed: steps per second and their latency as the clients see it; the same over the batch form, 256 steps a
request; episodes that are still open after the lease (leaked: must be 0); and the server's memory before, after the
first round and after the last.

    python -m benchmarks.service
"""

from __future__ import annotations

import io
import itertools
import multiprocessing
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, field

import httpx
import numpy as np

from envs.service import RemoteWorld
from envs.service.client import ServiceClient
from envs.service.limits import ServiceLimits
from envs.service.schema import Batch, Closed, Create, Created, CreateMany, Many, Seen, StepMany, StepOf, Stepped
from envs.service.server import serve
from turnwise import seeding
from turnwise.world import Observation, Remaining, Step, Task, World, make_world

WORLDS = ("envs.frozen_lake:FrozenLake", "envs.textcraft:TextCraft")
EPISODES, STEPS, ROUNDS = 256, 10, 3
VANISHING, SENT_TWICE = 8, 7
"""Every so many clients, and every so many steps."""
LEASE_SECONDS = 10.0


@dataclass(frozen=True)
class Script:
    """An episode as the local world plays it."""

    task: Task
    seed: int
    first: Observation
    moves: tuple[tuple[str, Step], ...]


@dataclass
class Load:
    """What the clients saw."""

    took: list[tuple[float, float]] = field(default_factory=list)
    """When each step was sent, and when it was answered."""
    wrong: int = 0
    failed: list[str] = field(default_factory=list)


def main() -> None:
    """Run the load test on each world and print a table."""
    heading = ("steps/s", "p50 ms", "p99 ms", "batch steps/s", "open", "leaked", "wrong", "memory MB")
    sys.stdout.write(f"{EPISODES} episodes at once, {ROUNDS} rounds of {STEPS} steps each\n")
    sys.stdout.write(f"{'world':>12} " + " ".join(f"{name:>13}" for name in heading) + "\n")
    for name in WORLDS:
        sys.stdout.write(_measure(name) + "\n")
        sys.stdout.flush()


def _measure(name: str) -> str:
    local = make_world(name, {})
    scripts = [_script(local, task, seed) for seed, task in enumerate(local.tasks("train", EPISODES))]
    with _served(name) as url:
        world = RemoteWorld(url=url, world=name, version=local.version, seconds=60)
        world.client = ServiceClient(url, seconds=60, retries=3, token_variable="", transport=TwiceNowAndThen)
        load, memory, seconds = Load(), [_metric(url, "process_resident_memory_bytes")], 0.0
        for _ in range(ROUNDS):
            before = len(load.took)
            _play_all(world, scripts, load)
            if load.failed:
                raise RuntimeError(f"{len(load.failed)} of {EPISODES} episodes failed; the first: {load.failed[0]}")
            starts, ends = zip(*load.took[before:], strict=True)
            seconds += max(ends) - min(starts)
            memory.append(_metric(url, "process_resident_memory_bytes"))
        still_open = _metric(url, "turnwise_service_episodes_open{")
        batch = _batch_steps_per_second(world, scripts, load)
        time.sleep(1.5 * LEASE_SECONDS)
        leaked = _metric(url, "turnwise_service_episodes_open{")
        memory.append(_metric(url, "process_resident_memory_bytes"))
    latencies = [end - start for start, end in load.took]
    p50, p99 = (1000 * float(np.percentile(latencies, share)) for share in (50, 99))
    figures = (f"{len(latencies) / seconds:,.0f}", f"{p50:.1f}", f"{p99:.1f}", f"{batch:,.0f}")
    counts = (f"{still_open:.0f}", f"{leaked:.0f}", f"{load.wrong}")
    path = " ".join(f"{memory[place] / 2**20:.0f}" for place in (0, 1, -1))
    return f"{local.name:>12} " + " ".join(f"{value:>13}" for value in (*figures, *counts, path))


def _script(world: World, task: Task, seed: int) -> Script:
    environment = world.make(task, seed)
    first = environment.reset()
    draw = seeding.generator(seed, "load test")
    moves: list[tuple[str, Step]] = []
    while len(moves) < STEPS:
        (action, *_) = environment.random(draw, Remaining(STEPS, 1, STEPS)).actions
        moves.append((action, environment.step(action)))
    environment.close()
    return Script(task, seed, first, tuple(moves))


def _play_all(world: RemoteWorld, scripts: list[Script], load: Load) -> None:
    ready = threading.Barrier(len(scripts))

    def client(number: int, script: Script) -> None:
        try:
            _play(world, script, load, ready, vanishes=number % VANISHING == 0)
        except Exception as error:  # a thread's error would be lost
            load.failed.append(f"{type(error).__name__}: {error}")
            ready.abort()

    threads = [threading.Thread(target=client, args=pair) for pair in enumerate(scripts)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _play(world: RemoteWorld, script: Script, load: Load, ready: threading.Barrier, *, vanishes: bool) -> None:
    environment = world.make(script.task, script.seed)
    load.wrong += environment.reset() != script.first
    ready.wait()  # all episodes are open before the first step
    for action, expected in script.moves[: STEPS // 2 if vanishes else STEPS]:
        began = time.perf_counter()
        step = environment.step(action)
        load.took.append((began, time.perf_counter()))
        load.wrong += step != expected
    if not vanishes:
        environment.close()


def _batch_steps_per_second(world: RemoteWorld, scripts: list[Script], load: Load) -> float:
    """All episodes go on together, one request a step."""
    creations = [
        Create(world=world.served, task=each.task, seed=each.seed, key=f"batch-{each.seed}") for each in scripts
    ]
    created = world.client.post("/batch/create", Batch[Created], CreateMany(episodes=creations)).outcomes
    episodes = [outcome.reply.episode for outcome in created if outcome.reply is not None]
    world.client.post("/batch/reset", Batch[Seen], Many(episodes=episodes))
    began = time.perf_counter()
    for number in range(1, STEPS + 1):
        steps = [
            StepOf(episode=episode, number=number, action=script.moves[number - 1][0])
            for episode, script in zip(episodes, scripts, strict=True)
        ]
        outcomes = world.client.post("/batch/step", Batch[Stepped], StepMany(steps=steps)).outcomes
        for outcome, script in zip(outcomes, scripts, strict=True):
            load.wrong += outcome.reply is None or outcome.reply.step != script.moves[number - 1][1]
    seconds = time.perf_counter() - began
    world.client.post("/batch/close", Batch[Closed], Many(episodes=episodes))
    return len(episodes) * STEPS / seconds


class TwiceNowAndThen(httpx.BaseTransport):
    """One connection; every seventh step is sent twice, one right after the other, and the second answer returned."""

    steps = itertools.count(1)

    def __init__(self) -> None:
        self._inner = httpx.HTTPTransport(limits=httpx.Limits(max_connections=1))

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Pass a request on."""
        if request.url.path.endswith("/step") and next(self.steps) % SENT_TWICE == 0:
            self._inner.handle_request(request).read()
        return self._inner.handle_request(request)


@contextmanager
def _served(name: str) -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    limits = ServiceLimits(episodes=2 * EPISODES, lease_seconds=LEASE_SECONDS)
    process = multiprocessing.get_context("spawn").Process(target=_serve_quietly, args=(name, port, limits))
    process.start()
    url = f"http://127.0.0.1:{port}"
    try:
        while not _answers(url):
            time.sleep(0.1)
        yield url
    finally:
        process.terminate()
        process.join()


def _serve_quietly(name: str, port: int, limits: ServiceLimits) -> None:
    with redirect_stdout(io.StringIO()):
        serve([name], port=port, limits=limits)


def _answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/v2/health").status_code == 200
    except httpx.ConnectError:
        return False


def _metric(url: str, name: str) -> float:
    lines = httpx.get(f"{url}/v2/metrics", timeout=60).text.splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name))


if __name__ == "__main__":
    main()
