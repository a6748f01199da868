"""The inspection of a home finds what is not as it was written, and says what nobody needs any more."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from turnwise.store import Reference, Store
from turnwise.store.inspection import inspect_artifacts, inspect_database, inspect_notes


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def written(store: Store, text: str) -> Reference:
    with store.write("sample") as draft:
        (draft.folder / "text").write_text(text)
    store.record_clock(draft.reference, {"seconds": 1.5})
    store.record_lineage(draft.reference, "a" * 32, {"stage": "test"})
    return draft.reference


def test_an_intact_store_is_counted(store: Store) -> None:
    for text in ("one", "two", "three"):
        written(store, text)
    artifacts, notes = inspect_artifacts(store), inspect_notes(store)
    assert (artifacts.checked, artifacts.damaged, artifacts.left_over) == (3, [], [])
    assert (notes.checked, notes.damaged, notes.left_over) == (6, [], []), "a clock and a lineage record each"


def test_a_store_that_was_never_written_is_intact(store: Store) -> None:
    assert (inspect_artifacts(store).checked, inspect_notes(store).checked) == (0, 0)


def test_damage_strangers_and_drafts_are_told_apart(store: Store) -> None:
    good, bad = written(store, "good"), written(store, "bad")
    (store.root / "sample" / bad.digest / "text").write_text("bat")
    (store.root / "sample" / "holiday.jpg").touch()
    (store.root / "Thumbs.db").touch()
    draft = store.root / ".drafts" / "abandoned"
    draft.mkdir(parents=True)
    found = inspect_artifacts(store)
    assert found.checked == 2 and found.left_over == [str(draft)]
    damaged, *strangers = found.damaged
    assert str(bad) in damaged and "content of text" in damaged and str(good) not in " ".join(found.damaged)
    assert strangers == [
        f"{store.root / name} is no artifact and belongs to none: move it elsewhere"
        for name in ("Thumbs.db", "sample/holiday.jpg")
    ]


def test_an_inspection_does_not_trust_the_index(store: Store) -> None:
    reference = written(store, "content")
    path = store.root / "sample" / reference.digest / "text"
    state = path.stat()
    assert inspect_artifacts(store).damaged == []
    path.write_text("kontent")
    assert path.stat().st_size == state.st_size
    assert len(inspect_artifacts(Store(store.root)).damaged) == 1


def test_a_note_without_an_artifact_is_left_over_and_one_that_cannot_be_read_is_damaged(store: Store) -> None:
    first, second = written(store, "first"), written(store, "second")
    clock = store.root / "sample" / f"{first.digest}.clock.json"
    clock.write_text('{"seconds": NaN}')
    gone = Reference(kind="sample", digest="0" * 32)
    store.record_clock(gone, {"seconds": 1.0})
    found = inspect_notes(store)
    assert found.checked == 5
    assert [text.partition(" ")[0] for text in found.damaged] == [str(clock)]
    assert found.left_over == [str(store.root / "sample" / f"{gone.digest}.clock.json")]
    assert second.digest not in " ".join([*found.damaged, *found.left_over])


def test_a_database_is_read_page_by_page(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    missing = inspect_database("runs", path, "run it again")
    assert (missing.checked, missing.damaged, missing.mended_by) == (0, [], "run it again")
    connection = sqlite3.connect(path)
    connection.execute("create table runs (name text)")
    connection.executemany("insert into runs values (?)", [("x" * 500,)] * 100)
    connection.commit()
    connection.close()
    assert (inspect_database("runs", path, "").checked, inspect_database("runs", path, "").damaged) == (1, [])
    content = bytearray(path.read_bytes())
    content[4096 : 4096 + 600] = b"\xff" * 600
    path.write_bytes(content)
    damaged = inspect_database("runs", path, "").damaged
    assert damaged and all(text.startswith(f"{path}: ") for text in damaged) and len(damaged) <= 10
    path.write_bytes(b"no database at all" * 100)
    (only,) = inspect_database("runs", path, "").damaged
    assert "not a database" in only
