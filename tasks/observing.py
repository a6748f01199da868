"""Who is told of stages as they run: observers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from turnwise.store import Reference


@dataclass(frozen=True)
class StageCall:
    """What an observer is told when a stage has returned."""

    stage: str
    label: str
    reference: Reference
    cached: bool
    """Whether the result was found, not computed."""
    seconds: float
    """That this call took; what computing took is in the artifact's clock, under `seconds`."""


class Observer:
    """Is told of every stage that is called while it observes: see `observing`. Override what is of interest."""

    def started(self, stage: str, label: str) -> None:
        """A stage was called; whether it is cached is not known yet."""

    def finished(self, call: StageCall) -> None:
        """A stage has returned its reference. One that raised is not reported."""


current_observers: ContextVar[tuple[Observer, ...]] = ContextVar("observers", default=())


@contextmanager
def observing(observer: Observer) -> Iterator[None]:
    """Tell the observer of every stage that the block calls."""
    token = current_observers.set((*current_observers.get(), observer))
    try:
        yield
    finally:
        current_observers.reset(token)
