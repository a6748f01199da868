"""An engine that answers single requests as they come, on a thread of its own.

What comes while others are answered joins them at the next engine step. So what is sampled depends on when requests
come: recorded episodes are exact, and not repeatable.
"""

from __future__ import annotations

import itertools
import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future

from turnwise.policy.engines.contract import Engine, Reply

Submission = tuple[tuple[int, ...], int | None, "Future[Reply]"]


class SamplingThread:
    """Samples replies from the engine that `make` makes, with its policy loaded and its rollout begun."""

    def __init__(self, make: Callable[[], Engine]) -> None:
        self._make = make
        self._waiting: queue.SimpleQueue[Submission | None] = queue.SimpleQueue()
        self._ready: Future[int] = Future()
        self._thread = threading.Thread(target=self._run, name="sampling", daemon=True)
        self._thread.start()

    @property
    def context_length(self) -> int:
        """The most tokens of a context and its reply. Waits for the engine, and raises what making it raised."""
        return self._ready.result()

    def sample(self, context: Sequence[int], reply_tokens: int | None = None) -> Future[Reply]:
        """Request a reply; the future raises as `Engine.submit` does."""
        future: Future[Reply] = Future()
        self._waiting.put((tuple(context), reply_tokens, future))
        return future

    def close(self) -> None:
        """Answer what was requested, and end the thread."""
        self._waiting.put(None)
        self._thread.join()

    def _run(self) -> None:
        try:
            engine = self._make()
        except BaseException as error:
            self._ready.set_exception(error)
            self._refuse(error)
            return
        self._ready.set_result(engine.context_length)
        awaited: dict[int, Future[Reply]] = {}
        numbers = itertools.count()
        open_ = True
        while open_ or awaited:
            while open_ and (not awaited or not self._waiting.empty()):
                submission = self._waiting.get()
                if submission is None:
                    open_ = False
                    break
                context, reply_tokens, future = submission
                number = next(numbers)
                try:
                    engine.submit(number, context, reply_tokens)
                except Exception as error:
                    future.set_exception(error)
                else:
                    awaited[number] = future
            try:
                for reply in engine.step() if awaited else ():
                    awaited.pop(reply.episode).set_result(reply)
            except Exception as error:  # whoever waits must hear of it, and nobody would read it here
                for future in awaited.values():
                    future.set_exception(error)
                if open_:
                    self._refuse(error)
                break
        engine.close()

    def _refuse(self, error: BaseException) -> None:
        """Answer every request with the error, until `close`: one that comes later would wait for ever."""
        while (submission := self._waiting.get()) is not None:
            submission[-1].set_exception(error)
