"""Retention: how much stays on the disk of each policy and critic of a run.

A chain is what a run learned, in order: its policies, or its critics. Of a few the optimizer's state stays, of more the
weights, and of all the manifest, the metrics and the lineage, by which the rest can be made again. What a warm start or
a user has put into the store is no part of a chain, and stays.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from enum import IntEnum

from turnwise.config.schema import Storage
from turnwise.store.manifest import Reference


class Keep(IntEnum):
    """How much of an artifact stays."""

    METRICS = 0
    """Nothing that can be made again."""
    WEIGHTS = 1
    """What sampling and scoring read."""
    EVERYTHING = 2
    """All that training goes on from."""


@dataclass(frozen=True)
class Link:
    """One policy or critic of a chain."""

    reference: Reference
    evaluation: Reference | None = None
    """On the validation panel, where it was evaluated."""


_TRAINING_STATE = ("optimizer/*", "adapter/*", "critic/*")
_FILES: dict[str, dict[Keep, tuple[str, ...]]] = {
    "policy": {Keep.METRICS: ("model*.safetensors", *_TRAINING_STATE), Keep.WEIGHTS: _TRAINING_STATE},
    "critic": {Keep.METRICS: ("*.safetensors",), Keep.WEIGHTS: ("*.safetensors",)},  # only training reads a critic
    "rollout": {Keep.METRICS: ("*.parquet",)},
}


def files_to_prune(kind: str, keep: Keep) -> tuple[str, ...]:
    """Patterns of the files of such an artifact that do not stay."""
    return _FILES.get(kind, {}).get(keep, ())


def kept(
    chain: Sequence[Link],
    storage: Storage,
    success: Callable[[Reference], float],
    whole: Collection[Reference] = (),
) -> dict[Reference, Keep]:
    """How much stays of each link, by the section `storage`.

    A link that stands in the chain several times (where an update was skipped) stays as its best place says.

    Args:
        success: of an evaluation.
        whole: the references that a run may go back to.
    """
    best = _best(chain, storage.keep_best, success) if storage.keep_best else ()
    found: dict[Reference, Keep] = {}
    for place, link in enumerate(chain, start=1):
        keep = Keep.METRICS
        if _among_last(storage.keep_last, place, len(chain)) or link in best:
            keep = Keep.WEIGHTS
        if storage.keep_evaluated and link.evaluation is not None:
            keep = Keep.WEIGHTS
        if _among_last(storage.keep_optimizer, place, len(chain)) or link.reference in whole:
            keep = Keep.EVERYTHING
        found[link.reference] = max(keep, found.get(link.reference, Keep.METRICS))
    return found


def _among_last(count: int | None, place: int, length: int) -> bool:
    return count is None or place > length - count


def _best(chain: Sequence[Link], count: int, success: Callable[[Reference], float]) -> Collection[Link]:
    """The evaluated links with the most success, later ones first where they have the same."""
    evaluated = [
        (success(link.evaluation), place, link) for place, link in enumerate(chain) if link.evaluation is not None
    ]
    return [link for _, _, link in sorted(evaluated, key=lambda each: each[:2], reverse=True)[:count]]
