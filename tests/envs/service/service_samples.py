"""What the service's tests share: a server on the loopback address, a brittle world, and a network that fails."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

import httpx
import numpy as np
import uvicorn
from fastapi import FastAPI

from envs.service import RemoteWorld
from envs.service.application import create_application
from envs.service.client import ServiceClient
from envs.service.limits import ServiceLimits
from envs.service.offers import Offer
from envs.service.server import connection_options
from turnwise import seeding
from turnwise.world import Environment, Limits, Observation, Remaining, Reward, ScriptedAction, Split, Step, Task, World

REMAINING = Remaining(5, 2, 10)
BRITTLE = "service_samples:Brittle"
ENDLESS = "service_samples:Endless"


WRONG: Mapping[str, Any] = {
    "infinite": Step(Observation("endless"), {"counted": float("inf")}),
    "nothing earned": Step(Observation("so"), {"counted": None}),  # type: ignore[dict-item]
    "raw": Step(Observation(b"raw")),  # type: ignore[arg-type]
    "no step": None,
}
"""What the contract does not allow, by the action that it answers."""


class Brittle(World):
    """A world that does what its actions say: counts, raises, hangs, prints, or takes its process with it."""

    name: ClassVar[str] = "brittle"
    version: ClassVar[str] = "3"
    rewards: ClassVar[Mapping[str, Reward]] = {"counted": Reward("1 for every `count`", "turn", 1.0)}
    grammar = "count, pid, print, raise, exit, hang or crash."
    limits = Limits(turns=10)
    closed: ClassVar[list[str]] = []
    """The tasks whose environments were closed in this process."""
    go_on: ClassVar[threading.Event] = threading.Event()
    """What `hang` waits for."""

    def __init__(self, *, instruction: str = "Do as you are told.", broken: bool = False) -> None:
        if broken:
            raise RuntimeError("this world cannot be made")
        self.instruction = instruction

    def limits_of(self, task: Task) -> Limits:
        return Limits(turns=task.seed + 1)

    def split_size(self, split: Split) -> int | None:
        return 100

    def tasks(self, split: Split, count: int) -> list[Task]:
        if count > 100:
            raise ValueError(f"count must be at most 100; found {count}")
        return [Task(self.name, f"brittle/{split}/{number}", split, number) for number in range(count)]

    def make(self, task: Task, seed: int) -> Environment:
        if not task.id.startswith("brittle/"):
            raise ValueError(f"a task must be of this world; found {task.id!r}")
        return BrittleEnvironment(task)


class Endless(Brittle):
    """A world of tasks without end, which waits before it lists them."""

    name: ClassVar[str] = "endless"
    go_on: ClassVar[threading.Event] = threading.Event()
    """What every listing waits for."""
    listed: ClassVar[list[int]] = []
    """The count of every listing."""

    def split_size(self, split: Split) -> int | None:
        return None

    def tasks(self, split: Split, count: int) -> list[Task]:
        Endless.listed.append(count)
        Endless.go_on.wait()
        return [Task(self.name, f"brittle/{split}/{number}", split, number) for number in range(count)]


class BrittleEnvironment(Environment):
    def __init__(self, task: Task) -> None:
        self._task, self._count, self._threads = task, 0, {threading.get_ident()}

    def reset(self) -> Observation:
        return self._observe("ready")

    def step(self, action: str) -> Step:
        if action == "count":
            self._count += 1
            return Step(self._observe(f"{self._count}"), {"counted": np.float32(1.0)}, success=np.bool_(False))  # type: ignore[arg-type]
        if action == "raise":
            raise ConnectionError("no route")
        if action == "exit":
            raise SystemExit(3)
        if action == "crash":
            os._exit(7)
        if action == "hang":
            Brittle.go_on.wait()
        if action == "print":
            print('{"number": 1}', flush=True)
        if action == "surrogate":
            return Step(Observation("page \ud800", state="\udfff"))
        if action in WRONG:
            return WRONG[action]
        return Step(self._observe(f"{os.getpid()}"), valid=action in ("pid", "print"))

    def oracle(self, remaining: Remaining) -> ScriptedAction:
        return ScriptedAction("count", ("count",))

    def random(self, generator: np.random.Generator, remaining: Remaining) -> ScriptedAction:
        return ScriptedAction("draw", (f"{generator.integers(1000)}",))

    def close(self) -> None:
        Brittle.closed.append(self._task.id)

    def _observe(self, text: str) -> Observation:
        self._threads.add(threading.get_ident())
        return Observation(f"{text} on {len(self._threads)} thread", state=str(self._count))


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@contextmanager
def running(app: FastAPI, limits: ServiceLimits | None = None) -> Iterator[str]:
    """An application on a free port of the loopback address, started and stopped with its worlds; its address."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        options = connection_options(limits or ServiceLimits())
        server = uvicorn.Server(uvicorn.Config(app, log_level="error", **options))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        while not server.started and thread.is_alive():
            time.sleep(0.01)
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()


@contextmanager
def serving(*offers: Offer, **options: Any) -> Iterator[str]:
    """These worlds, served; the address."""
    with running(create_application(offers, **options), options.get("limits")) as url:
        yield url


def send_over(world: RemoteWorld, url: str, transport: httpx.BaseTransport, retries: int = 3) -> RemoteWorld:
    """The world, whose requests now travel over this."""
    world.client = ServiceClient(
        url, seconds=20, retries=retries, token_variable="", transport=lambda: transport, first_wait=0.001
    )
    return world


FAULTS: Sequence[str] = ("none", "late", "unreachable", "answer lost", "sent twice", "gateway", "sent again later")


class FaultyNetwork(httpx.BaseTransport):
    """A network that delays, loses and repeats, differently for every request, but not more than twice for each."""

    def __init__(self) -> None:
        self._inner = httpx.HTTPTransport(limits=httpx.Limits(max_connections=None))
        self._lock = threading.Lock()
        self._sent: Counter[tuple[str, str, bytes]] = Counter()
        self._held_back: dict[str, httpx.Request] = {}
        self.faults: Counter[str] = Counter()

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        fault, stale = self._fault(request)
        if stale is not None:
            self._inner.handle_request(stale).read()
        if fault == "late":
            time.sleep(0.01)
        if fault == "unreachable":
            raise httpx.ConnectError("no route", request=request)
        if fault == "gateway":
            return httpx.Response(502, text="<html>bad gateway</html>", request=request)
        response = self._inner.handle_request(request)
        if fault == "answer lost":
            response.read()
            raise httpx.ReadError("connection reset", request=request)
        if fault == "sent twice":
            response.read()
            response = self._inner.handle_request(request)
        return response

    def _fault(self, request: httpx.Request) -> tuple[str, httpx.Request | None]:
        """What goes wrong with this request, and an earlier one of the episode that arrives once more before it."""
        path = request.url.path
        key = (request.method, path, request.content)
        with self._lock:
            self._sent[key] += 1
            times = self._sent[key]
            # Of the number of requests so far: a request of an episode that is played again meets other faults.
            fault = FAULTS[seeding.derive(len(self._sent), "fault", times) % len(FAULTS)] if times <= 2 else "none"
            self.faults[fault] += 1
            stale = self._held_back.pop(path, None)
            if fault == "sent again later":
                self._held_back[path] = request
        return fault, stale


class Counting(httpx.BaseTransport):
    """A network that answers every request alike, and counts them."""

    def __init__(self, answer: Callable[[], httpx.Response]) -> None:
        self._answer = answer
        self.requests = 0

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        self.requests += 1
        return self._answer()
