"""Reproduction: a recorded run made again elsewhere, and the first place where it differs.

A run is a chain of artifacts, each named by the digest of its content. Laid beside each other in the order in which
they were made, the first pair that differs is where to look: what came after it had other inputs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from turnwise.store import Reference
from turnwise.tracking.finding import RunArtifacts
from turnwise.world import SPLITS

INGREDIENTS = ("stage", "code", "parameters", "inputs", "platform")


@dataclass(frozen=True)
class Step:
    """One artifact of a run."""

    name: str
    """When and as what it was made, e.g. `iteration 3: rollout`."""
    recorded: Reference | None
    again: Reference | None

    @property
    def equal(self) -> bool:
        """Whether it came out the same."""
        return self.recorded == self.again


def steps(recorded: RunArtifacts, again: RunArtifacts) -> list[Step]:
    """Every artifact of both runs in the order of making; what only one of them has stands beside None."""
    first, second = dict(_named(recorded)), dict(_named(again))
    return [Step(name, first.get(name), second.get(name)) for name in dict.fromkeys([*first, *second])]


def first_difference(found: list[Step]) -> Step | None:
    """The earliest artifact that did not come out the same; None where all did."""
    return next((step for step in found if not step.equal), None)


def differing_ingredients(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """What two lineage records of one step do not share: code, parameters, inputs or platform, down to the key."""
    return [path for name in INGREDIENTS for path in _differing(one.get(name), other.get(name), name)]


def _named(run: RunArtifacts) -> Iterator[tuple[str, Reference]]:
    order = (*(f"{split}_panel" for split in SPLITS), "demonstrations", "tokenizer", "warm_start")
    yield from ((name, run.prepared[name]) for name in order if name in run.prepared)
    yield "start: evaluation", run.start
    if run.start_at_horizon is not None:
        yield "start: evaluation at the horizon", run.start_at_horizon
    for number, made in enumerate(run.iterations, start=1):
        yield from ((f"iteration {number}: {name}", reference) for name, reference in made.items())
    if run.test is not None:
        yield "test: evaluation", run.test
    if run.test_at_horizon is not None:
        yield "test: evaluation at the horizon", run.test_at_horizon


def _differing(one: Any, other: Any, path: str) -> list[str]:
    if one == other:
        return []
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        keys = dict.fromkeys([*one, *other])
        return [found for key in keys for found in _differing(one.get(key), other.get(key), f"{path}.{key}")]
    return [path]
