"""Progress of long computations, for whoever listens: a terminal, a log, nobody.

The library reports, and does not know how it is shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Progress:
    """`done` of `total` parts of a computation, with the figures worth showing meanwhile."""

    what: str
    done: int
    total: int
    figures: Mapping[str, float] = field(default_factory=dict)


_listeners: list[Callable[[Progress], None]] = []


@contextmanager
def listening(listener: Callable[[Progress], None]) -> Iterator[None]:
    """Have every report passed to `listener` while the block runs."""
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)


def report(what: str, done: int, total: int, **figures: float) -> None:
    """Say how far a computation has come."""
    for listener in _listeners:
        listener(Progress(what, done, total, figures))
