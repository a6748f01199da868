"""The bound of a local cache: what was used longest ago goes first, what is in use or was opened just now stays."""

from __future__ import annotations

import os
import time
from pathlib import Path

from turnwise.store import Reference, Store
from turnwise.store.shared import STAYS_FOR_SECONDS, CacheRoom, cached


def artifact(store: Store, text: str, age: float) -> Reference:
    """An artifact of 1000 bytes that was last used so many seconds ago."""
    with store.write("sample") as draft:
        (draft.folder / "data").write_text(text * 1000)
    entry = store.root / ".verified" / "sample" / draft.reference.digest
    os.utime(entry, (time.time() - age, time.time() - age))
    return draft.reference


def test_the_least_recently_used_come_first_and_only_what_holds_files(tmp_path: Path) -> None:
    store = Store(tmp_path)
    older, newer, pruned = artifact(store, "a", 300), artifact(store, "b", 200), artifact(store, "c", 400)
    store.record_lineage(older, "0" * 32, {"stage": "one"})
    store.prune(pruned, ["data"])
    assert [(each.reference, each.bytes) for each in cached(tmp_path)] == [(older, 1000), (newer, 1000)]


def test_so_much_is_freed_that_the_bound_holds(tmp_path: Path) -> None:
    store = Store(tmp_path)
    oldest, older, _ = artifact(store, "a", 300), artifact(store, "b", 200), artifact(store, "c", 100)
    room, freed = CacheRoom(tmp_path, 1500), []
    for each in room.to_free(0):
        freed.append(each)
        room.freed(1000)
    assert freed == [oldest, older]


def test_what_could_not_be_freed_does_not_count(tmp_path: Path) -> None:
    store = Store(tmp_path)
    every = [artifact(store, "a", 300), artifact(store, "b", 200), artifact(store, "c", 100)]
    assert list(CacheRoom(tmp_path, 1500).to_free(0)) == every


def test_what_was_opened_a_moment_ago_stays(tmp_path: Path) -> None:
    store = Store(tmp_path)
    old = artifact(store, "a", STAYS_FOR_SECONDS + 60)
    artifact(store, "b", 0)
    assert list(CacheRoom(tmp_path, 1).to_free(0)) == [old]


def test_it_is_looked_at_again_only_when_enough_was_added(tmp_path: Path) -> None:
    store, room = Store(tmp_path), CacheRoom(tmp_path, 1000)
    assert list(room.to_free(0)) == []
    first, second = artifact(store, "a", 300), artifact(store, "b", 200)
    assert list(room.to_free(40)) == []
    assert list(room.to_free(20)) == [first, second]


def test_without_a_bound_nothing_is_looked_at(tmp_path: Path) -> None:
    artifact(Store(tmp_path), "a", 300)
    assert list(CacheRoom(tmp_path, None).to_free(10**12)) == []
