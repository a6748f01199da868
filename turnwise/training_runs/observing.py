"""Observers: callbacks that are notified when stages start and finish."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from turnwise.store import Reference


@dataclass(frozen=True)
class StageCall:
    """A stage that has returned, as reported to observers."""

    stage: str
    label: str
    reference: Reference
    cached: bool
    """Whether the result came from the cache."""
    seconds: float
    """Wall time of computing it, or of finding it. What computing took when it was made is in the artifact's clock."""
    key: str
    """The cache key of the call."""


class Observer:
    """Base class: notified of every stage that is called inside `observing`. Override the methods of interest."""

    def started(self, stage: str, label: str) -> None:
        """A stage begins to compute, once more where it is tried again. An error that is raised here is the stage's."""

    def finished(self, call: StageCall) -> None:
        """A stage has its result, computed or cached. One that raised is not reported."""


class FinishedStages(Observer):
    """Calls a function with every stage that has returned, computed or cached."""

    def __init__(self, report: Callable[[StageCall], None]) -> None:
        self._report = report

    def finished(self, call: StageCall) -> None:
        """Report the stage."""
        self._report(call)


current_observers: ContextVar[tuple[Observer, ...]] = ContextVar("observers", default=())


@contextmanager
def observing(observer: Observer) -> Iterator[None]:
    """Notify the observer of every stage that is called in the block."""
    token = current_observers.set((*current_observers.get(), observer))
    try:
        yield
    finally:
        current_observers.reset(token)


def notify(call: StageCall) -> None:
    """Notify the current observers of a stage that has returned."""
    for observer in current_observers.get():
        observer.finished(call)
