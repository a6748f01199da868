"""The thread that samples single requests: nobody waits for ever on an engine that raised."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from turnwise.policy.engines.contract import Reply
from turnwise.policy.engines.sampling_thread import SamplingThread

WAIT = 20.0
"""Seconds, by far more than any of these answers takes."""


class Fragile:
    """An engine that answers with the context, until a step in which it breaks."""

    context_length = 8
    closed = False

    def __init__(self, steps: int) -> None:
        self._steps, self._submitted = steps, list[Reply]()

    def submit(self, episode: int, context: Sequence[int], reply_tokens: int | None = None) -> None:
        if not context:
            raise ValueError("a context must have tokens")
        if reply_tokens == 0:
            raise RuntimeError("nothing can be said")
        self._submitted.append(Reply(episode, tuple(context), (-1.0,) * len(context), True))

    def step(self) -> list[Reply]:
        self._steps -= 1
        if self._steps < 0:
            raise RuntimeError("the card fell off the bus")
        replies, self._submitted = self._submitted, []
        return replies

    def close(self) -> None:
        self.closed = True


@contextmanager
def sampling(make: Callable[[], Any]) -> Iterator[SamplingThread]:
    thread = SamplingThread(make)
    try:
        yield thread
    finally:
        thread.close()


def test_a_request_that_comes_after_the_engine_broke_hears_of_it_as_the_one_that_it_broke_on() -> None:
    engine = Fragile(steps=1)
    with sampling(lambda: engine) as thread:
        assert thread.sample([1, 2]).result(WAIT).tokens == (1, 2)
        for _ in range(2):
            with pytest.raises(RuntimeError, match="fell off the bus"):
                thread.sample([3]).result(WAIT)
    assert engine.closed


def test_a_request_of_an_engine_that_could_not_be_made_hears_why() -> None:
    def broken() -> Any:
        raise OSError("no weights")

    with sampling(broken) as thread, pytest.raises(OSError, match="no weights"):
        thread.sample([1]).result(WAIT)


def test_a_request_that_the_engine_does_not_take_fails_alone() -> None:
    with sampling(lambda: Fragile(steps=9)) as thread:
        with pytest.raises(ValueError, match="must have tokens"):
            thread.sample([]).result(WAIT)
        with pytest.raises(RuntimeError, match="nothing can be said"):
            thread.sample([1], 0).result(WAIT)
        assert thread.sample([1, 2]).result(WAIT).complete
