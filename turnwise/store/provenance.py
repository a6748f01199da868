"""Ancestry: what an artifact was made from, back to the panels, as the store's lineage records tell it.

`turnwise.store.run_environment` says what code and platform *are*; the store keeps, beside every artifact, what they
*were* when it was made. This reads those records into a tree in which nothing is told twice, and a chain of updates is
told once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from turnwise.store import Reference, Store
from turnwise.store.digests import digest_of
from turnwise.store.inputs import references_in

UPDATE, CHAIN = "update", "policy"
"""The stage whose results form a chain, and the input along which they do."""
TOLD = ("iteration", "seed", "split", "player", "samples", "temperature", "model")
"""The parameters that an artifact's line names, where it has them; all are in its record."""
SHOWN_DIGITS = 12


@dataclass(frozen=True)
class Ancestor:
    """One artifact, the role in which its child read it, and what it was itself made from."""

    role: str
    reference: Reference
    record: dict[str, Any] | None
    """How it was made; None where the store does not know. Of several ways the first by its key."""
    ways: int = 1
    """In how many ways the same content was produced."""
    told_elsewhere: bool = False
    """Whether its inputs stand at another place of the tree, or it is one of a chain that is told once."""
    earlier: list[dict[str, Any]] = field(default_factory=list)
    """The records of the updates that lie between this one and the policy beneath it, the latest first."""
    inputs: list[Ancestor] = field(default_factory=list)

    @property
    def line(self) -> str:
        """What the artifact is, in one line."""
        where = f"{self.role}: " if self.role not in ("", self.reference.kind) else ""
        if self.record is None:
            return f"{where}{shortened(self.reference)}, of which is not recorded how it was made"
        stage, parameters = str(self.record["stage"]), self.record["parameters"]
        words = [] if stage == self.reference.kind else [stage]
        words += [f"{name} {parameters[name]}" for name in TOLD if parameters.get(name) is not None]
        words += [f"made in {self.ways} ways"] * (self.ways > 1) + ["see there"] * self.told_elsewhere
        return f"{where}{shortened(self.reference)}" + (f" ({', '.join(words)})" if words else "")


def ancestry(store: Store, reference: Reference, role: str = "") -> Ancestor:
    """The tree above an artifact. Raises ArtifactError where the store does not hold it."""
    store.manifest(reference)
    return _ancestor(store, reference, role, {reference})


def _ancestor(store: Store, reference: Reference, role: str, told: set[Reference]) -> Ancestor:
    """The artifact with its inputs. `told` grows by what has its place: each is expanded where it is nearest."""
    ways = store.lineage(reference)
    record = next(iter(ways.values()), None)
    if record is None:
        return Ancestor(role, reference, None)
    inputs = dict(references_in(record["inputs"]))
    earlier: list[dict[str, Any]] = []
    if record["stage"] == UPDATE:
        while (before := _record(store, inputs.get(CHAIN))) is not None and before["stage"] == UPDATE:
            told.add(inputs[CHAIN])
            inputs[CHAIN] = dict(references_in(before["inputs"]))[CHAIN]
            earlier.append(before)
    new = [each for each in inputs.values() if each not in told]
    told.update(new)
    above = [
        _ancestor(store, each, name, told) if each in new else _named(store, each, name)
        for name, each in inputs.items()
    ]
    return Ancestor(role, reference, record, len(ways), earlier=earlier, inputs=above)


def _named(store: Store, reference: Reference, role: str) -> Ancestor:
    """An artifact whose inputs stand elsewhere in the tree."""
    return Ancestor(role, reference, _record(store, reference), told_elsewhere=True)


def _record(store: Store, reference: Reference | None) -> dict[str, Any] | None:
    return None if reference is None else next(iter(store.lineage(reference).values()), None)


def shortened(reference: Reference) -> str:
    """The kind and as much of the digest as tells it from others."""
    return f"{reference.kind}/{reference.digest[:SHOWN_DIGITS]}"


@dataclass(frozen=True)
class Code:
    """One state of the code that artifacts were computed with."""

    commit: str
    uncommitted: str
    """The digest of the diff from the commit, or "none"."""
    artifacts: int
    """How many of the tree."""


def codes(tree: Ancestor) -> list[Code]:
    """The states of the code that made the artifacts of the tree, the most frequent first."""
    found = Counter((str(record["commit"]), str(record["uncommitted"])) for record in _records(tree))
    return [Code(commit, uncommitted, count) for (commit, uncommitted), count in found.most_common()]


def platforms(tree: Ancestor) -> list[str]:
    """The digests of the platforms on which the artifacts of the tree were computed, in order."""
    found = [record["platform"] for record in _records(tree) if record["platform"] is not None]
    return list(dict.fromkeys(map(digest_of, found)))


def _records(tree: Ancestor) -> Iterator[dict[str, Any]]:
    """The record of every artifact of the tree, each once, those of chains included."""
    if tree.record is not None and not tree.told_elsewhere:
        yield tree.record
    yield from tree.earlier
    for each in tree.inputs:
        yield from _records(each)


def found_in(store: Store, wanted: str) -> list[Reference]:
    """The artifacts that `kind/digest`, a digest, or the beginning of one (six characters at least) names, in order."""
    kind, slash, digest = wanted.rpartition("/")
    if len(digest) < 6 or not set(digest) <= set("0123456789abcdef"):
        return []
    folders = sorted(store.root.glob(f"{kind if slash else '*'}/{digest}*/manifest.json"))
    names = [(path.parent.parent.name, path.parent.name) for path in folders]
    return [Reference(kind=kind, digest=digest) for kind, digest in names if len(digest) == 32]
