"""Clocks and lineage stand outside every digest: a damaged one is told once, and stops nothing."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from turnwise.store import Reference, Store


def write_sample(store: Store) -> Reference:
    with store.write("sample") as draft:
        draft.metrics["success"] = 0.5
    return draft.reference


DAMAGED = [b"", b'{"seconds": 3.', b"\x00\xff\xfe", b"[1, 2]", b'"text"', b"[" * 100_000]
NO_CLOCKS = [b'{"seconds": "soon"}', b'{"seconds": NaN}', b'{"seconds": {}}']


@pytest.mark.parametrize("content", DAMAGED + NO_CLOCKS)
def test_a_damaged_clock_is_empty_told_once_and_replaced(
    tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    store = Store(tmp_path)
    reference = write_sample(store)
    store.record_clock(reference, {"seconds": 3.5})
    path = tmp_path / "sample" / f"{reference.digest}.clock.json"
    path.write_bytes(content)
    with caplog.at_level(logging.WARNING):
        assert store.clock(reference) == Store(tmp_path).clock(reference) == {}
    assert [str(path) in entry.message for entry in caplog.records] == [True]
    store.record_clock(reference, {"tokens_per_second": 900.0})
    assert store.clock(reference) == {"tokens_per_second": 900.0}


@pytest.mark.parametrize("content", DAMAGED)
def test_a_damaged_lineage_is_told_once_and_the_others_are_read(
    tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    store = Store(tmp_path)
    reference = write_sample(store)
    store.record_lineage(reference, "a" * 32, {"stage": "first"})
    store.record_lineage(reference, "b" * 32, {"stage": "second"})
    path = tmp_path / "sample" / f"{reference.digest}.lineage" / f"{'a' * 32}.json"
    path.write_bytes(content)
    with caplog.at_level(logging.WARNING):
        assert [store.lineage(reference) for _ in range(2)] == [{"b" * 32: {"stage": "second"}}] * 2
    assert [str(path) in entry.message for entry in caplog.records] == [True]
    store.record_lineage(reference, "a" * 32, {"stage": "first"})
    assert list(store.lineage(reference)) == ["a" * 32, "b" * 32]
