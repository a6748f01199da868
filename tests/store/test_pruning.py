"""Pruning: named files go, the artifact stays; what is missing without a record is damage; readers are left alone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from turnwise.errors import ArtifactError
from turnwise.store import Reference, Store, pruning
from turnwise.store.artifacts import EVERYTHING


def write_sample(store: Store) -> Reference:
    with store.write("sample") as draft:
        for folder, name in (("", "small.json"), ("", "model.bin"), ("optimizer", "moments.bin")):
            (draft.folder / folder).mkdir(exist_ok=True)
            (draft.folder / folder / name).write_text(name * 100)
        draft.metrics["success"] = 0.5
    return draft.reference


def test_what_is_left_of_a_pruned_artifact_is_there_and_intact(tmp_path: Path) -> None:
    store = Store(tmp_path)
    reference = write_sample(store)
    store.record_lineage(reference, "key", {"stage": "made"})
    store.record_clock(reference, {"seconds": 1.0})
    before = store.manifest(reference)
    assert store.prune(reference, ["optimizer/*"]) == 1100
    assert store.prune(reference, ["optimizer/*"]) == 0
    for reader in (store, Store(tmp_path)):
        assert reader.holds(reference)
        reader.verify(reference)
        assert reader.manifest(reference) == before and reader.metrics(reference) == {"success": 0.5}
        assert reader.lineage(reference) == {"key": {"stage": "made"}} and reader.clock(reference) == {"seconds": 1.0}
        assert reader.pruned(reference) == ["optimizer/moments.bin"]
        assert (reader.folder(reference, ["model*", "*.json"]) / "model.bin").exists()


def test_a_file_that_no_record_names_is_damage(tmp_path: Path) -> None:
    store = Store(tmp_path)
    reference = write_sample(store)
    store.prune(reference, ["optimizer/*"])
    (store.folder(reference, []) / "model.bin").unlink()
    with pytest.raises(ArtifactError, match=r"model\.bin.*TW-damaged-artifact"):
        store.verify(reference)
    assert not store.holds(reference)


def test_what_is_left_is_verified_and_damage_found(tmp_path: Path) -> None:
    store = Store(tmp_path)
    reference = write_sample(store)
    store.prune(reference, ["optimizer/*"])
    (store.folder(reference, []) / "model.bin").write_text("x" * 900)
    with pytest.raises(ArtifactError, match=r"model\.bin.*TW-damaged-artifact"):
        store.verify(reference)


def test_without_its_record_a_pruned_artifact_is_damaged(tmp_path: Path) -> None:
    store = Store(tmp_path)
    reference = write_sample(store)
    store.prune(reference, ["optimizer/*"])
    record = tmp_path / "sample" / f"{reference.digest}.pruned.json"
    record.write_text(record.read_text()[:10])
    with pytest.raises(ArtifactError, match=r"optimizer/moments\.bin.*TW-damaged-artifact"):
        Store(tmp_path).verify(reference)
    record.unlink()
    assert not Store(tmp_path).holds(reference)


def test_no_more_is_put_back_than_is_restored(tmp_path: Path) -> None:
    store = Store(tmp_path)
    reference = write_sample(store)
    store.prune(reference, EVERYTHING)
    with store.restoring(reference, ["model.bin"]):
        assert write_sample(store) == reference
    assert (store.folder(reference, ["model*"]) / "model.bin").read_text() == "model.bin" * 100
    assert store.pruned(reference) == ["optimizer/moments.bin", "small.json"]
    store.verify(reference)


def test_what_is_written_again_comes_back_whole(tmp_path: Path) -> None:
    store = Store(tmp_path)
    reference = write_sample(store)
    store.prune(reference, EVERYTHING)
    assert write_sample(store) == reference
    assert store.pruned(reference) == []
    store.verify(reference)


def test_asking_for_what_was_pruned_says_how_it_is_made_again(tmp_path: Path) -> None:
    store = Store(tmp_path)
    reference = write_sample(store)
    store.prune(reference, ["model*"])
    with pytest.raises(ArtifactError, match=r"model\.bin.*sample/.*TW-pruned"):
        store.folder(reference)


def test_nobody_prunes_what_is_being_read(tmp_path: Path) -> None:
    store, other = Store(tmp_path), Store(tmp_path)
    reference = write_sample(store)
    with pruning.reading():
        store.folder(reference)
        assert other.prune(reference, EVERYTHING) == 0
        with pruning.reading():
            other.folder(reference)
        assert other.prune(reference, EVERYTHING) == 0
    assert other.prune(reference, EVERYTHING) > 0


def test_reading_many_artifacts_keeps_few_of_them_open(tmp_path: Path) -> None:
    store = Store(tmp_path)
    references = []
    for number in range(pruning.MOST_LOCKED + 10):
        with store.write("sample") as draft:
            (draft.folder / "number.txt").write_text(str(number))
        references.append(draft.reference)
    before = len(os.listdir("/proc/self/fd"))
    with pruning.reading():
        for reference in references:
            store.folder(reference)
        assert len(os.listdir("/proc/self/fd")) - before == pruning.MOST_LOCKED
        assert store.prune(references[0], EVERYTHING) > 0
        assert store.prune(references[-1], EVERYTHING) == 0
    assert len(os.listdir("/proc/self/fd")) == before


KILLED = """
import os, signal, sys
from pathlib import Path
from turnwise.store import Reference, Store
store = Store(Path(sys.argv[1]))
removed = Path.unlink
def killed(path, *arguments):
    if path.name == "moments.bin" or path.name == sys.argv[3]:
        os.kill(os.getpid(), signal.SIGKILL)
    removed(path, *arguments)
Path.unlink = killed
store.prune(Reference(kind="sample", digest=sys.argv[2]), ["*.bin"])
"""


def test_a_process_killed_while_it_prunes_damages_nothing(tmp_path: Path) -> None:
    store = Store(tmp_path)
    reference = write_sample(store)
    ended = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path), reference.digest, "none"], check=False)
    assert ended.returncode == -signal.SIGKILL
    assert store.pruned(reference) == ["model.bin"], "one file is gone and the other is not"
    store.verify(reference)
    assert store.prune(reference, ["*.bin"]) == 1100
    store.verify(reference)
