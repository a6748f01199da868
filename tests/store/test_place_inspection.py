"""`turnwise verify` of a shared place: every byte is read, what is damaged is named, nothing is changed."""

from __future__ import annotations

from pathlib import Path

import pytest

from turnwise.store.inspection import inspect_place
from turnwise.store.place import FolderPlace
from turnwise.store.shared import SharedStore


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A place with one artifact of a file and three notes."""
    (tmp_path / "mounted").mkdir()
    store = SharedStore(tmp_path / "one", FolderPlace(str(tmp_path / "mounted")))
    store.place.require_writable()
    with store.write("policy") as draft:
        for name in ("model.bin", "optimizer.bin"):
            (draft.folder / name).write_bytes(b"1234")
    store.record_lineage(draft.reference, "a" * 32, {"stage": "update"})
    store.record_clock(draft.reference, {"seconds": 1.0})
    store.prune(draft.reference, ["optimizer*"])
    store.place.write("results/update/abc", b"{}")
    return tmp_path / "mounted"


def test_an_intact_place_is_counted_and_not_changed(folder: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    found = inspect_place(FolderPlace(str(folder)))
    assert (found.checked, found.damaged, found.left_over) == (1, [], [])
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before


@pytest.mark.parametrize("content", [b"12", b"5678", None])
@pytest.mark.parametrize("name", ["model.bin", "manifest.json"])
def test_a_damaged_or_missing_file_is_named(folder: Path, name: str, content: bytes | None) -> None:
    path = next(folder.rglob(name))
    path.unlink() if content is None else path.write_bytes(content)
    found = inspect_place(FolderPlace(str(folder)))
    if content is None and name == "manifest.json":
        assert found.checked == 0 and len(found.left_over) == 4, "an artifact that somebody may be writing"
    else:
        assert len(found.damaged) == 1 and str(path) in found.damaged[0]


def test_what_is_left_over_in_a_bucket_is_named_by_its_url(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    next(folder.rglob("manifest.json")).unlink()
    place = FolderPlace(str(folder))
    monkeypatch.setattr(place, "url", "s3://bucket/lab")
    left_over = inspect_place(place).left_over
    assert left_over and all(path.startswith("s3://bucket/lab/store/policy/") for path in left_over)


@pytest.mark.parametrize("note", ["*.clock.json", "*.lineage/*.json"])
def test_a_damaged_note_is_named(folder: Path, note: str) -> None:
    path = next(folder.glob(f"store/policy/{note}"))
    path.write_bytes(b"{")
    assert inspect_place(FolderPlace(str(folder))).damaged == [f"{path} cannot be read"]
