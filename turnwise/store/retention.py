"""Retention: how much of each policy, critic and rollout stays on the disk.

A chain is the sequence of policies, or of critics, that a run has learned. A few links keep the optimizer's state, more
keep the weights, and all keep the manifest, the metrics and the provenance, from which the rest can be recomputed.
Artifacts of a warm start or of a user are not part of a chain and always stay.

A run prunes as it goes (`kept`) and knows what it has made. A home that is older than pruning, or whose settings have
changed, has only the provenance records next to its artifacts (`removals`): each policy and critic records what it was
made from, so those from which nothing was made are the last of their runs. A policy that was abandoned at an alarm
counts as followed by the one that the run returned to.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from turnwise.config.schema import Storage
from turnwise.store.artifacts import Store
from turnwise.store.files import matching
from turnwise.store.manifest import Reference
from turnwise.store.notes import references_in


class Keep(IntEnum):
    """How much of an artifact stays; a higher level includes the lower ones."""

    METRICS = 0
    """Manifest, metrics and provenance: no file that can be recomputed."""
    WEIGHTS = 1
    """Also the files that sampling and scoring read."""
    EVERYTHING = 2
    """All files, the state that training resumes from included."""


@dataclass(frozen=True)
class RetentionEntry:
    """One policy or critic of a chain."""

    reference: Reference
    evaluation: Reference | None = None
    """Its evaluation on the validation task set; None where it was not evaluated."""


_TRAINING_STATE = ("optimizer/*", "critic/*")
_WEIGHTS = ("model*.safetensors", "adapter/*.safetensors")
_FILES: dict[str, dict[Keep, tuple[str, ...]]] = {
    "policy": {Keep.METRICS: (*_WEIGHTS, *_TRAINING_STATE), Keep.WEIGHTS: _TRAINING_STATE},
    "critic": {Keep.METRICS: ("*.safetensors",), Keep.WEIGHTS: ("*.safetensors",)},  # only training reads a critic
    "rollout": {Keep.METRICS: ("*.parquet",)},
}


def files_to_prune(kind: str, keep: Keep) -> tuple[str, ...]:
    """Patterns of the files to remove from an artifact of this kind; empty for kinds that are never pruned."""
    return _FILES.get(kind, {}).get(keep, ())


def kept(
    chain: Sequence[RetentionEntry],
    storage: Storage,
    success: Callable[[Reference], float],
    whole: Collection[Reference] = (),
    weights: Collection[Reference] = (),
) -> dict[Reference, Keep]:
    """How much of each link of a chain stays, according to the section `storage`.

    A link that occurs several times in the chain (an update was skipped) gets the highest level of its positions.

    Args:
        chain: the links in training order, the first one first.
        success: the success rate of an evaluation.
        whole: artifacts that the run may return to, which keep all their files.
        weights: artifacts that the run is yet to sample with, which keep their weights.
    """
    best = _best(chain, storage.keep_best, success) if storage.keep_best else ()
    levels: dict[Reference, Keep] = {}
    for place, link in enumerate(chain, start=1):
        keep = least_kept(link, storage)
        if _among_last(storage.keep_last, place, len(chain)) or link in best or link.reference in weights:
            keep = Keep.WEIGHTS
        if _among_last(storage.keep_optimizer, place, len(chain)) or link.reference in whole:
            keep = Keep.EVERYTHING
        levels[link.reference] = max(keep, levels.get(link.reference, Keep.METRICS))
    return levels


def least_kept(link: RetentionEntry, storage: Storage) -> Keep:
    """The level below which a link never falls, however many follow it."""
    return Keep.WEIGHTS if storage.keep_evaluated and link.evaluation is not None else Keep.METRICS


def _among_last(count: int | None, place: int, length: int) -> bool:
    return count is None or place > length - count


def _best(
    chain: Sequence[RetentionEntry], count: int, success: Callable[[Reference], float]
) -> Collection[RetentionEntry]:
    """The `count` evaluated links with the highest success; ties go to the later link."""
    scored_links = [
        (success(link.evaluation), place, link) for place, link in enumerate(chain) if link.evaluation is not None
    ]
    return [link for _, _, link in sorted(scored_links, key=lambda each: each[:2], reverse=True)[:count]]


FIRST_LINK = "initial_critic"
"""The stage that makes the first critic of a chain. The first policy is the warm start, which is never pruned."""


@dataclass(frozen=True)
class Removal:
    """The files of one artifact that may be removed, with their total size in bytes."""

    reference: Reference
    files: tuple[str, ...]
    bytes: int


def removals(
    store: Store, storage: Storage, success: Callable[[Reference], float], replaced: Mapping[str, str]
) -> list[Removal]:
    """The present files that the section `storage` does not keep, over every run in the store, sorted by reference.

    Args:
        success: returns the success rate of an evaluation.
        replaced: the stages that make the links of chains, each with the name of its input that is the previous link.
    """
    chains = _Chains(store, {**replaced, FIRST_LINK: ""})
    levels = dict.fromkeys(chains.links, Keep.METRICS)
    for last in chains.last():
        for reference, keep in kept(chains.chain(last), storage, success).items():
            levels[reference] = max(keep, levels[reference])
    if storage.keep_evaluated:
        levels.update({each: max(levels[each], Keep.WEIGHTS) for each in chains.evaluations.keys() & levels.keys()})
    levels.update(chains.rollouts(storage.keep_rollouts))
    candidates = [
        _removal(store, reference, files_to_prune(reference.kind, keep)) for reference, keep in levels.items()
    ]
    return sorted((each for each in candidates if each.files), key=lambda each: str(each.reference))


def _removal(store: Store, reference: Reference, patterns: tuple[str, ...]) -> Removal:
    files, pruned = store.manifest(reference).files, store.pruned(reference)
    there = [name for name in matching(files, patterns) if name not in pruned]
    return Removal(reference, tuple(there), sum(files[name].bytes for name in there))


class _Chains:
    """The chains of a store, reconstructed from provenance records."""

    def __init__(self, store: Store, replaced: Mapping[str, str]) -> None:
        self._store, self._replaced = store, replaced
        self.links: dict[Reference, list[dict[str, Any]]] = {}
        """Policies and critics made by the stages of chains and by no other, each with its records."""
        self._before: dict[Reference, Reference] = {}
        """The previous link, by link."""
        self._followed: set[Reference] = set()
        """Links from which another was made, or that were abandoned at an alarm."""
        for reference in (*store.references("policy"), *store.references("critic")):
            records = list(store.lineage(reference).values())
            if records and all(record["stage"] in replaced for record in records):
                self.links[reference] = records
                self._follow(reference, records)
        self.evaluations = self._evaluations()

    def last(self) -> Iterator[Reference]:
        """The last link of every chain: those from which nothing was made."""
        return (reference for reference in self.links if reference not in self._followed)

    def chain(self, last: Reference) -> list[RetentionEntry]:
        """The chain that ends with this link, from its first link on."""
        links: dict[Reference, None] = {}
        while last in self.links and last not in links:
            links[last] = None
            last = self._before.get(last, last)
        return [RetentionEntry(reference, self.evaluations.get(reference)) for reference in reversed(links)]

    def rollouts(self, most: int | None) -> dict[Reference, Keep]:
        """How much stays of each rollout that a link has learned from: all of the last `most` of each chain.

        Empty where `most` is None, which keeps every rollout.
        """
        if most is None:
            return {}
        levels: dict[Reference, Keep] = {}
        for last in self.last():
            learned_from = [self._learned_from(link.reference) for link in self.chain(last)]
            for place, references in enumerate(reversed(learned_from)):
                keep = Keep.EVERYTHING if place < most else Keep.METRICS
                levels.update({each: max(keep, levels.get(each, Keep.METRICS)) for each in references})
        return levels

    def _learned_from(self, link: Reference) -> list[Reference]:
        """The rollout that a link has learned from, and the rounds of sampling that were merged into it (`gather`)."""
        rollouts = list(_inputs_named("rollout", self.links[link]))
        for rollout in list(rollouts):
            for record in self._store.lineage(rollout).values():
                if record["stage"] == "gather":
                    rollouts += [each for _, each in references_in(record["inputs"])]
        return rollouts

    def _follow(self, reference: Reference, records: list[dict[str, Any]]) -> None:
        for record in records:
            inputs = dict(references_in(record["inputs"]))
            before = inputs.get(self._replaced[record["stage"]])
            if before is not None and before != reference:
                self._before.setdefault(reference, before)
                self._followed.add(before)
            if record["stage"] == "return_to" and "health" in inputs:
                # The policies that this health record is about, and that the run abandoned for it.
                self._followed.update(_inputs_named("policy", self._store.lineage(inputs["health"]).values()))

    def _evaluations(self) -> dict[Reference, Reference]:
        """The evaluation of each policy: on the validation task set where there is one, else any."""
        evaluations: dict[Reference, dict[str, Reference]] = defaultdict(dict)
        for evaluation in self._store.references("evaluation"):
            for record in self._store.lineage(evaluation).values():
                for policy in _inputs_named("policy", [record]):
                    evaluations[policy].setdefault(str(record["parameters"].get("split")), evaluation)
        return {policy: splits.get("validation", next(iter(splits.values()))) for policy, splits in evaluations.items()}


def _inputs_named(name: str, records: Iterable[Mapping[str, Any]]) -> Iterator[Reference]:
    """The input of this name in each provenance record that has one."""
    return (each for record in records for other, each in references_in(record["inputs"]) if other == name)
