"""The listing of an artifact's files: each once, at any depth, and nothing beyond its folder."""

from __future__ import annotations

import os
from pathlib import Path

from turnwise.store.files import files_below, folders_of, sizes_below


def test_every_file_is_listed_by_its_path_and_no_link_is_followed(tmp_path: Path) -> None:
    folder, elsewhere = tmp_path / "folder", tmp_path / "elsewhere"
    for name in ("a.txt", "parts/b.txt", "parts/deep/c.txt"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    (folder / "empty").mkdir()
    elsewhere.mkdir()
    (elsewhere / "secret").touch()
    (folder / "link").symlink_to(elsewhere)
    (folder / "parts" / "broken").symlink_to("nowhere")
    os.mkfifo(folder / "pipe")

    found = dict(files_below(folder))
    assert found.keys() == {"a.txt", "parts/b.txt", "parts/deep/c.txt", "link", "parts/broken", "pipe"}
    plain = {name for name, entry in found.items() if entry.is_file(follow_symlinks=False)}
    assert plain == {"a.txt", "parts/b.txt", "parts/deep/c.txt"}
    assert all(Path(found[name].path).read_text() == name for name in plain)
    assert set(map(Path, folders_of(folder))) == {folder, folder / "empty", folder / "parts", folder / "parts" / "deep"}


def test_a_file_that_is_removed_while_sizes_are_read_is_left_out_and_links_do_not_count(tmp_path: Path) -> None:
    names = {"a", "b", "parts/c"}
    (tmp_path / "parts").mkdir()
    for name in names:
        (tmp_path / name).write_bytes(b"12345")
    (tmp_path / "link").symlink_to("a")
    assert dict(sizes_below(tmp_path)) == dict.fromkeys(names, 5)
    listing = sizes_below(tmp_path)
    first, _ = next(listing)
    for name in names - {first}:
        (tmp_path / name).unlink()
    (tmp_path / "parts").rmdir()
    assert list(listing) == []


def test_what_is_no_folder_has_no_files(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert list(files_below(tmp_path / "missing")) == list(files_below(tmp_path / "file")) == []
