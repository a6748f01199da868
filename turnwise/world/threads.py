"""An environment on a thread of its own, which makes it, runs its calls in order, and closes it.

A call that hangs can then be abandoned, and costs only its own episode: a thread cannot be stopped, but this one does
not keep the process alive, and closes its environment if it ever resumes. A world may rely on being called from one
thread.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from operator import methodcaller
from typing import Any, TypeVar

from turnwise.world.contract import Environment

Result = TypeVar("Result")


class EnvironmentThread:
    """A daemon thread with one environment, from when that is made until it is closed."""

    def __init__(
        self,
        make: Callable[[], Environment],
        failure: Callable[[BaseException], BaseException] = lambda error: error,
    ) -> None:
        """`failure` turns what the world has raised into what its caller gets."""
        self.creation: Future[None] = running_future()
        self._failure = failure
        self._calls: queue.SimpleQueue[tuple[Callable[[Environment], Any], Future[Any]]] = queue.SimpleQueue()
        self._closed: Future[None] = running_future()
        threading.Thread(target=self._run, args=(make,), daemon=True, name="world").start()

    def call(self, work: Callable[[Environment], Result]) -> Future[Result]:
        """Have some work done with the environment, after all that was asked for before."""
        answer: Future[Result] = running_future()
        self._calls.put((work, answer))
        return answer

    def close(self) -> Future[None]:
        """Close the environment after the calls that were asked for before; the thread then ends."""
        self._calls.put((methodcaller("close"), self._closed))
        return self._closed

    def _run(self, make: Callable[[], Environment]) -> None:
        try:
            environment = make()
        except BaseException as error:  # boundary to the world's code: whatever it raises, also below, is its failure
            self.creation.set_exception(self._failure(error))
            return
        self.creation.set_result(None)
        while not self._closed.done():
            work, answer = self._calls.get()
            try:
                answer.set_result(work(environment))
            except BaseException as error:
                answer.set_exception(self._failure(error))


def running_future() -> Future[Any]:
    """A future that a thread will resolve, also when nobody waits for it any longer."""
    future: Future[Any] = Future()
    future.set_running_or_notify_cancel()
    return future
