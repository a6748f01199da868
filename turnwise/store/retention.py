"""Retention: how much of each policy and critic of a run stays on the disk.

A chain is the sequence of policies, or of critics, that a run has learned. A few links keep the optimizer's state, more
keep the weights, and all keep the manifest, the metrics and the provenance, from which the rest can be recomputed.
Artifacts of a warm start or of a user are not part of a chain and always stay.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from enum import IntEnum

from turnwise.config.schema import Storage
from turnwise.store.manifest import Reference


class Keep(IntEnum):
    """How much of an artifact stays; a higher level includes the lower ones."""

    METRICS = 0
    """Manifest, metrics and provenance: no file that can be recomputed."""
    WEIGHTS = 1
    """Also the files that sampling and scoring read."""
    EVERYTHING = 2
    """All files, the state that training resumes from included."""


@dataclass(frozen=True)
class Link:
    """One policy or critic of a chain."""

    reference: Reference
    evaluation: Reference | None = None
    """Its evaluation on the validation task set; None where it was not evaluated."""


_TRAINING_STATE = ("optimizer/*", "adapter/*", "critic/*")
_FILES: dict[str, dict[Keep, tuple[str, ...]]] = {
    "policy": {Keep.METRICS: ("model*.safetensors", *_TRAINING_STATE), Keep.WEIGHTS: _TRAINING_STATE},
    "critic": {Keep.METRICS: ("*.safetensors",), Keep.WEIGHTS: ("*.safetensors",)},  # only training reads a critic
    "rollout": {Keep.METRICS: ("*.parquet",)},
}


def files_to_prune(kind: str, keep: Keep) -> tuple[str, ...]:
    """Patterns of the files to remove from an artifact of this kind; empty for kinds that are never pruned."""
    return _FILES.get(kind, {}).get(keep, ())


def kept(
    chain: Sequence[Link],
    storage: Storage,
    success: Callable[[Reference], float],
    whole: Collection[Reference] = (),
) -> dict[Reference, Keep]:
    """How much of each link of a chain stays, according to the section `storage`.

    A link that occurs several times in the chain (an update was skipped) gets the highest level of its positions.

    Args:
        chain: the links in training order, the first one first.
        success: the success rate of an evaluation.
        whole: artifacts that the run may return to, which keep all their files.
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
    """The `count` evaluated links with the highest success; ties go to the later link."""
    evaluated = [
        (success(link.evaluation), place, link) for place, link in enumerate(chain) if link.evaluation is not None
    ]
    return [link for _, _, link in sorted(evaluated, key=lambda each: each[:2], reverse=True)[:count]]
