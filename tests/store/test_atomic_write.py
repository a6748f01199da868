"""Files that belong together are replaced together, or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from turnwise.store.atomic_write import write_together


def contents(folder: Path) -> dict[str, bytes]:
    paths = [path for path in folder.rglob("*") if path.is_file()]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def test_files_are_replaced_and_obsolete_ones_removed_and_those_of_others_stay(tmp_path: Path) -> None:
    folder = tmp_path / "results"
    write_together(folder, {"table": b"1", "figures/a": b"1", "account": b"1"})
    (folder / "notes").write_bytes(b"mine")
    write_together(folder, {"table": b"2", "figures/b": b"2"}, ["account", "figures/a", "figures/b", "never"])
    assert contents(folder) == {"table": b"2", "figures/b": b"2", "notes": b"mine"}
    assert list(tmp_path.iterdir()) == [folder]


def test_what_cannot_all_be_written_leaves_what_was_there(tmp_path: Path) -> None:
    folder = tmp_path / "results"
    write_together(folder, {"table": b"1", "curves": b"1"})
    with pytest.raises(OSError, match="too long"):
        write_together(folder, {"table": b"2", "x" * 300: b"2"}, ["curves"])
    assert contents(folder) == {"table": b"1", "curves": b"1"}
    assert list(tmp_path.iterdir()) == [folder]
