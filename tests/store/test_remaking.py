"""Making pruned files again: from the nearest whole ancestors, in order, to the same digest, no more than is asked."""

from __future__ import annotations

import inspect
import logging
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from turnwise.errors import ArtifactError
from turnwise.progress import Progress, listening
from turnwise.store import Reference, Store
from turnwise.store.artifacts import EVERYTHING
from turnwise.store.remaking import Record, make_again, steps_to


class Chain:
    """Artifacts that stages of sums have made: what a stage computes is its term and those of its inputs, added up."""

    def __init__(self, root: Path) -> None:
        self.store = Store(root)
        self.computed: list[int] = []
        self.repeats = True

    def make(self, term: int, *inputs: Reference, key: str = "key") -> Reference:
        record = {"stage": "sum", "parameters": {"term": term}, "inputs": {"terms": [str(each) for each in inputs]}}
        reference = self.compute(record)
        self.store.record_lineage(reference, key, {**record, "code": "1", "platform": None, "commit": "c"})
        self.computed.clear()
        return reference

    def compute(self, record: Record) -> Reference:
        term: int = record["parameters"]["term"]
        self.computed.append(term)
        terms = [Reference(kind="sum", digest=text.partition("/")[2]) for text in record["inputs"]["terms"]]
        read = [int((self.store.folder(each) / "sum.txt").read_text()) for each in terms]
        with self.store.write("sum") as draft:
            (draft.folder / "sum.txt").write_text(str(sum(read) + term + (not self.repeats)))
            (draft.folder / "moments").mkdir()
            (draft.folder / "moments" / "first.txt").write_text("first" * term)
        return draft.reference

    def opened(self, reference: Reference, needed: Sequence[str] = EVERYTHING) -> Path:
        if gone := self.store.pruned(reference, needed):
            make_again(self.store, reference, gone, self.compute, lambda record: "")
        return self.store.folder(reference, needed)

    def pruned(self, references: Sequence[Reference]) -> list[int]:
        """The places of those of which anything was pruned."""
        return [place for place, each in enumerate(references) if self.store.pruned(each)]


def line(root: Path, length: int) -> tuple[Chain, list[Reference]]:
    """A chain of artifacts, each made from the one before it."""
    chain = Chain(root)
    made = [chain.make(1)]
    for term in range(2, length + 1):
        made.append(chain.make(term, made[-1]))
    return chain, made


def test_one_in_the_middle_is_made_again_from_the_nearest_that_is_whole(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    chain, made = line(tmp_path, 8)
    for place in (1, 3, 4, 5, 6):
        chain.store.prune(made[place], EVERYTHING)
    reports: list[Progress] = []
    with listening(reports.append):
        assert (chain.opened(made[5]) / "sum.txt").read_text() == "21"
    assert chain.computed == [4, 5, 6]
    assert chain.pruned(made) == [1, 3, 4, 6], "what was made on the way is pruned again"
    chain.store.verify(made[5])
    assert [(report.done, report.total) for report in reports] == [(0, 3), (1, 3), (2, 3), (3, 3)]
    (said,) = [record.message for record in caplog.records if record.levelno == logging.WARNING]
    assert f"of {made[5]} were pruned and are needed: made again in 3 steps" in said


def test_no_more_comes_back_than_is_asked_for(tmp_path: Path) -> None:
    chain, made = line(tmp_path, 4)
    for reference in made[1:]:
        chain.store.prune(reference, EVERYTHING)
    chain.opened(made[2], ["sum.txt"])
    assert chain.store.pruned(made[2]) == ["moments/first.txt"]
    assert chain.pruned(made) == [1, 2, 3]


def test_what_is_there_is_read_and_not_made(tmp_path: Path) -> None:
    chain, made = line(tmp_path, 4)
    for reference in made:
        chain.store.prune(reference, ["moments/*"])
    chain.opened(made[3], ["sum.txt"])
    assert chain.computed == []


def test_a_chain_that_is_longer_than_calls_may_nest_is_made_again(tmp_path: Path) -> None:
    length = 150
    chain, made = line(tmp_path, length)
    for reference in made[1:]:
        chain.store.prune(reference, ["sum.txt"])
    depth, allowed = len(inspect.stack(0)), sys.getrecursionlimit()
    sys.setrecursionlimit(depth + 100)
    try:
        found = (chain.opened(made[-1]) / "sum.txt").read_text()
    finally:
        sys.setrecursionlimit(allowed)
    assert found == str(length * (length + 1) // 2)
    assert len(chain.computed) == length - 1
    assert chain.pruned(made) == list(range(1, length - 1))


def test_what_two_read_is_made_once(tmp_path: Path) -> None:
    chain = Chain(tmp_path)
    root = chain.make(1)
    shared = chain.make(2, root)
    left, right = chain.make(3, shared), chain.make(4, shared, root)
    both = chain.make(5, left, right)
    for reference in (shared, left, right, both):
        chain.store.prune(reference, EVERYTHING)
    chain.opened(both)
    assert sorted(chain.computed) == [2, 3, 4, 5] and chain.computed[-1] == 5
    assert chain.pruned([root, shared, left, right, both]) == [1, 2, 3]


def test_content_that_was_also_made_from_itself_is_made_the_other_way(tmp_path: Path) -> None:
    chain, made = line(tmp_path, 3)
    record: dict[str, Any] = {"stage": "sum", "parameters": {"term": 0}, "inputs": {"terms": [str(made[2])]}}
    chain.store.record_lineage(made[2], "a", record)
    record["inputs"]["terms"] = [str(made[2]), str(made[0])]
    chain.store.record_lineage(made[1], "a", record)
    for reference in made[1:]:
        chain.store.prune(reference, EVERYTHING)
    assert [step.reference for step in steps_to(chain.store, made[2])] == made[1:]
    chain.opened(made[2])
    assert chain.computed == [2, 3]


def test_what_comes_out_different_is_refused(tmp_path: Path) -> None:
    chain, made = line(tmp_path, 3)
    for reference in made[1:]:
        chain.store.prune(reference, EVERYTHING)
    chain.repeats = False
    with pytest.raises(ArtifactError, match="TW-remade-otherwise") as caught:
        chain.opened(made[2])
    assert str(made[1]) in str(caught.value), "the first that differs is named"
    assert chain.pruned(made) == [1, 2]
    with pytest.raises(ArtifactError, match=r"\b1\b.*\b2\b.*TW-remade-otherwise"):
        make_again(chain.store, made[2], ["sum.txt"], chain.compute, lambda record: "code was 1 and is 2")


def test_without_an_origin_nothing_can_be_made_again(tmp_path: Path) -> None:
    chain, made = line(tmp_path, 3)
    for reference in made:
        chain.store.prune(reference, EVERYTHING)
    for path in (tmp_path / "sum").glob(f"{made[0].digest}.lineage/*"):
        path.unlink()
    with pytest.raises(ArtifactError, match=rf"{made[0]}.*TW-origin-lost"):
        chain.opened(made[2])
