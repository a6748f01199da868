"""The stages that a test calls."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from turnwise.training_runs.observing import FinishedStages, StageCall, observing


@contextmanager
def stage_calls() -> Iterator[list[StageCall]]:
    """The stages that return in the block, computed or cached, in order."""
    calls: list[StageCall] = []
    with observing(FinishedStages(calls.append)):
        yield calls


def computed(calls: Iterable[StageCall]) -> list[str]:
    """The names of the stages that were computed and not found."""
    return [call.stage for call in calls if not call.cached]
