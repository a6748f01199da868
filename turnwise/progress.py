"""Progress reports of long computations, passed to listeners such as a terminal or a log.

The library only reports; how progress is shown is the listener's business.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

Item = TypeVar("Item")


@dataclass(frozen=True)
class Progress:
    """One report: `done` of `total` parts of a computation, with figures worth showing meanwhile.

    `total` is 0 where the number of parts is not known.
    """

    what: str
    done: int
    total: int
    figures: Mapping[str, float] = field(default_factory=dict)


_listeners: list[Callable[[Progress], None]] = []


@contextmanager
def listening(listener: Callable[[Progress], None]) -> Iterator[None]:
    """Pass every report to `listener` while the block runs."""
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)


def report(what: str, done: int, total: int, **figures: float) -> None:
    """Report to every listener that `done` of `total` parts of a computation are finished."""
    for listener in _listeners:
        listener(Progress(what, done, total, figures))


def each(what: str, items: Sequence[Item]) -> Iterator[Item]:
    """Yield the items, with a report before each of how many are finished."""
    for done, item in enumerate(items):
        report(what, done, len(items))
        yield item
