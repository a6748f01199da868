"""External inputs: what is read counts, and where it lies does not."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from turnwise.store import plugin_identity
from turnwise.store.digests import digest_of, sha256_of
from turnwise.store.plugin_identity import cached_sha256, outside_file, outside_files


def test_a_file_is_identified_by_its_bytes_and_keeps_its_place(tmp_path: Path) -> None:
    for name in ("here", "there"):
        (tmp_path / name).write_text("hello")
    here, there = (outside_file(tmp_path / name) for name in ("here", "there"))
    assert here.content == there.content == hashlib.sha256(b"hello").hexdigest()
    assert (here.place, there.place) == (str(tmp_path / "here"), str(tmp_path / "there"))


def test_files_of_a_folder_are_identified_by_their_relative_paths_and_contents(tmp_path: Path) -> None:
    for folder in ("one", "two"):
        (tmp_path / folder / "inner").mkdir(parents=True)
        (tmp_path / folder / "a.txt").write_text("hello")
        (tmp_path / folder / "inner" / "b.txt").write_text("")
    files = {folder: [tmp_path / folder / "a.txt", tmp_path / folder / "inner" / "b.txt"] for folder in ("one", "two")}
    found = {folder: outside_files(tmp_path / folder, paths) for folder, paths in files.items()}
    assert found["one"].content == found["two"].content
    assert found["one"].content == digest_of(
        {"a.txt": hashlib.sha256(b"hello").hexdigest(), "inner/b.txt": hashlib.sha256(b"").hexdigest()}
    )
    assert outside_files(tmp_path / "one", reversed(files["one"])).content == found["one"].content
    assert outside_files(tmp_path / "one", files["one"][:1]).content != found["one"].content
    (tmp_path / "two" / "a.txt").rename(tmp_path / "two" / "c.txt")
    assert outside_files(tmp_path / "two", (tmp_path / "two").rglob("*.txt")).content != found["two"].content


def test_a_file_is_read_again_only_when_it_has_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[Path] = []

    def counted(path: Path) -> str:
        read.append(path)
        return sha256_of(path)

    monkeypatch.setattr(plugin_identity, "sha256_of", counted)
    path = tmp_path / "weights"
    path.write_text("one")
    first = cached_sha256(path)
    assert cached_sha256(path) == first
    (tmp_path / "inner").mkdir()
    assert cached_sha256(tmp_path / "inner" / ".." / "weights") == first
    assert len(read) == 1, "one file, however its path is spelled"
    path.write_text("two")  # as long as before; only its times tell
    os.utime(path, ns=(1, 1))
    assert cached_sha256(path) == hashlib.sha256(b"two").hexdigest()
    assert len(read) == 2


def test_a_file_that_is_not_there_has_no_content(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        outside_file(tmp_path / "nothing")
