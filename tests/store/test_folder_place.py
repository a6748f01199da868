"""A folder as a shared place: whole files, names as in a bucket, and a refusal where it is not mounted."""

from __future__ import annotations

from pathlib import Path

import pytest

from turnwise.errors import ConfigurationError
from turnwise.store.place import FolderPlace


def test_what_was_written_is_listed_read_copied_and_removed(tmp_path: Path) -> None:
    place = FolderPlace(str(tmp_path))
    place.write("store/a/b", b"12345")
    place.write("store/a.note", b"1")
    (tmp_path / "file").write_bytes(b"123")
    place.upload("store/a/", {"store/a/c/d": tmp_path / "file"})
    assert place.sizes("store/a") == {"store/a/b": 5, "store/a/c/d": 3, "store/a.note": 1}
    assert place.sizes("store/a/") == {"store/a/b": 5, "store/a/c/d": 3}
    assert place.sizes("nothing/here") == {}
    assert place.read(["store/a/b", "store/x"]) == {"store/a/b": b"12345"}
    assert place.download("store/a/c/d", tmp_path / "copy") and (tmp_path / "copy").read_bytes() == b"123"
    assert not place.download("store/x", tmp_path / "copy of nothing")
    place.remove(["store/a/b", "store/x"])
    assert place.sizes("store/a/") == {"store/a/c/d": 3}


def test_nothing_half_written_is_ever_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = FolderPlace(str(tmp_path))
    monkeypatch.setattr("turnwise.store.place.sync", lambda path: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        place.write("a", b"12345")
    assert place.sizes("") == {}
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_folder_that_is_not_mounted_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="TW-store-unusable"):
        FolderPlace(str(tmp_path / "mnt")).require_writable()
    assert not (tmp_path / "mnt").exists()
