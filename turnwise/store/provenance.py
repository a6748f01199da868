"""Provenance: the tree of artifacts that an artifact was made from, back to the task sets.

`turnwise.store.run_environment` describes the code and platform of the present process; the store keeps, next to every
artifact, a record of what they were when it was made. This module reads those records into a tree that expands every
artifact once and collapses a chain of updates into one node.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Set
from dataclasses import dataclass, field
from typing import Any

from turnwise.store import Reference, Store
from turnwise.store.digests import digest_of
from turnwise.store.notes import references_in

UPDATE, CHAIN = "update", "policy"
"""The stage whose results form a chain, and the name of its input that is the previous link."""
TOLD = ("iteration", "seed", "split", "baseline", "samples", "temperature", "model")
"""The parameters shown in an artifact's line, where it has them; its record has all of them."""
SHOWN_DIGITS = 12


@dataclass(frozen=True)
class Ancestor:
    """A node of the provenance tree: an artifact, and the artifacts that it was made from."""

    role: str
    """The name of the input as which its child read it."""
    reference: Reference
    record: dict[str, Any] | None
    """How it was made; None where the store has no record. Where there are several records, the first by cache key of
    those that do not make the artifact from itself."""
    ways: int = 1
    """The number of records: ways in which the same content was produced."""
    expanded_elsewhere: bool = False
    """Whether its inputs are listed elsewhere in the tree, or it belongs to a chain that is shown as one node."""
    earlier: list[dict[str, Any]] = field(default_factory=list)
    """The records of the updates between this one and the policy that the chain began with, the latest first."""
    inputs: list[Ancestor] = field(default_factory=list)

    @property
    def line(self) -> str:
        """One line of text: role, reference, stage and the parameters in `TOLD`."""
        prefix = f"{self.role}: " if self.role not in ("", self.reference.kind) else ""
        if self.record is None:
            return f"{prefix}{shortened(self.reference)}, of which is not recorded how it was made"
        stage, parameters = str(self.record["stage"]), self.record["parameters"]
        words = [] if stage == self.reference.kind else [stage]
        words += [f"{name} {parameters[name]}" for name in TOLD if parameters.get(name) is not None]
        words += [f"made in {self.ways} ways"] * (self.ways > 1) + ["see there"] * self.expanded_elsewhere
        return f"{prefix}{shortened(self.reference)}" + (f" ({', '.join(words)})" if words else "")


def ancestry(store: Store, reference: Reference, role: str = "") -> Ancestor:
    """The provenance tree of an artifact. Raises ArtifactError where the store does not hold it."""
    store.manifest(reference)
    return _ancestor(store, reference, role, {reference}, {reference})


def _ancestor(store: Store, reference: Reference, role: str, seen: set[Reference], chain: Set[Reference]) -> Ancestor:
    """The node of an artifact, with its inputs. `chain` is the policies that were made from it by updates, and itself.

    `seen` collects the artifacts that already have a place in the tree, and grows: the inputs of a node are claimed
    before any of them is expanded, so that an artifact is expanded as a direct input rather than further away.
    """
    ways = store.lineage(reference)
    record = _record(store, reference, chain)
    if record is None:
        return Ancestor(role, reference, None)
    inputs = dict(references_in(record["inputs"]))
    earlier: list[dict[str, Any]] = []
    links = {*chain}
    if record["stage"] == UPDATE:
        links.add(inputs[CHAIN])
        while (before := _record(store, inputs[CHAIN], links)) is not None and before["stage"] == UPDATE:
            seen.add(inputs[CHAIN])
            inputs[CHAIN] = dict(references_in(before["inputs"]))[CHAIN]
            links.add(inputs[CHAIN])
            earlier.append(before)
    new = [each for each in inputs.values() if each not in seen]
    seen.update(new)
    above = [
        _ancestor(store, each, name, seen, links if name == CHAIN else {each})
        if each in new
        else Ancestor(name, each, _record(store, each, {each}), expanded_elsewhere=True)
        for name, each in inputs.items()
    ]
    return Ancestor(role, reference, record, len(ways), earlier=earlier, inputs=above)


def _record(store: Store, reference: Reference, chain: Set[Reference]) -> dict[str, Any] | None:
    """How an artifact was made, not from a policy of `chain`: an update that moves nothing makes what it read."""
    ways = store.lineage(reference).values()
    return next((way for way in ways if dict(references_in(way["inputs"])).get(CHAIN) not in chain), None)


def shortened(reference: Reference) -> str:
    """`kind/digest` with the first 12 characters of the digest, for display."""
    return f"{reference.kind}/{reference.digest[:SHOWN_DIGITS]}"


@dataclass(frozen=True)
class Code:
    """One state of the code: commit plus uncommitted changes."""

    commit: str
    uncommitted: str
    """The digest of the diff from the commit, or "none"."""
    artifacts: int
    """How many artifacts of the tree were computed with it."""


def codes(tree: Ancestor) -> list[Code]:
    """The states of the code that made the artifacts of the tree, the most frequent first."""
    counts = Counter((str(record["commit"]), str(record["uncommitted"])) for record in _records(tree))
    return [Code(commit, uncommitted, count) for (commit, uncommitted), count in counts.most_common()]


def platforms(tree: Ancestor) -> list[str]:
    """The distinct digests of the platforms on which the artifacts of the tree were computed, from the root on."""
    platform_records = [record["platform"] for record in _records(tree) if record["platform"] is not None]
    return list(dict.fromkeys(map(digest_of, platform_records)))


def _records(tree: Ancestor) -> Iterator[dict[str, Any]]:
    """The record of every artifact of the tree, each once, including those collapsed into chains."""
    if tree.record is not None and not tree.expanded_elsewhere:
        yield tree.record
    yield from tree.earlier
    for each in tree.inputs:
        yield from _records(each)


def matching_artifacts(store: Store, wanted: str) -> list[Reference]:
    """The artifacts that `kind/digest`, a digest, or a prefix of one (at least 6 characters) matches, sorted."""
    kind, slash, digest = wanted.rpartition("/")
    if len(digest) < 6 or not set(digest) <= set("0123456789abcdef"):
        return []
    return store.references(kind if slash else "*", digest)
