"""Clocks and lineage stand outside every digest: a damaged one is reported once, and stops nothing."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from turnwise.store import Reference, Store
from turnwise.store.notes import Clock, Lineage, damage, read_note, references_in, with_references, write_note


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


def test_references_are_found_in_recorded_inputs_however_deep_with_names_that_tell_where() -> None:
    first, second, third = (Reference(kind="rollout", digest=f"{number:032x}") for number in (1, 2, 3))
    recorded = {"policy": str(first), "values": None, "rollouts": [str(second), [str(third)]], "of": {"a": str(first)}}
    assert list(references_in(recorded)) == [
        ("policy", first),
        ("rollouts 1", second),
        ("rollouts 2 1", third),
        ("of a", first),
    ]
    assert with_references(recorded) == {
        "policy": first,
        "values": None,
        "rollouts": [second, [third]],
        "of": {"a": first},
    }
    with pytest.raises(ValueError, match="pattern"):
        with_references({"policy": "policy/elsewhere"})


def test_a_note_is_written_whole_and_its_damage_is_named(tmp_path: Path) -> None:
    path = tmp_path / "inner" / "note.json"
    write_note(path, {"seconds": 1.5, "bytes": 2.0}, tmp_path / "temporary")
    assert read_note(path, Clock) == {"bytes": 2.0, "seconds": 1.5}
    assert damage(path, Clock) is None
    assert [each.name for each in tmp_path.rglob("*") if each.is_file()] == ["note.json"]
    with pytest.raises(ValueError, match="JSON compliant"):
        write_note(path, {"seconds": float("nan")}, tmp_path / "temporary")
    path.write_text('{"seconds": "soon"}')
    assert "valid number" in str(damage(path, Clock))
    assert damage(path, Lineage) is None, "a record of any values"
    with pytest.raises(FileNotFoundError):
        damage(tmp_path / "nothing", Clock)
