"""A full disk is one sentence, whatever library met it, and nothing else is taken for one."""

from __future__ import annotations

import errno
import os
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from safetensors import SafetensorError
from safetensors.numpy import save_file

from tests.own_view import let_see
from turnwise.errors import ArtifactError, DiskFull
from turnwise.store import default_store, full_disk
from turnwise.store.full_disk import report_full_disk, require_room

NO_ROOM = os.strerror(errno.ENOSPC)


class Usage(NamedTuple):
    total: int
    used: int
    free: int


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, NO_ROOM),
        OSError(errno.EDQUOT, os.strerror(errno.EDQUOT)),
        SafetensorError(f"Error while serializing: I/O error: {NO_ROOM} (os error 28)"),
        sqlite3.OperationalError("database or disk is full"),
    ],
    ids=["a file", "a quota", "safetensors", "a database"],
)
def test_a_full_disk_is_told_with_its_folder_what_is_free_and_what_to_do(
    turnwise_home: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    turnwise_home.mkdir()
    let_see(monkeypatch, full_disk, "shutil", disk_usage=lambda folder: Usage(10**9, 10**9 - 1_500_000, 1_500_000))
    for raised in (error, RuntimeError("wrapped")):
        with pytest.raises(DiskFull, match="TW-full-disk") as told, report_full_disk():
            raise raised from (None if raised is error else error)
        assert str(turnwise_home) in str(told.value) and "1.5 MB are free" in str(told.value)
        assert "\n" not in str(told.value) and isinstance(told.value, OSError), "it is tried again, as others are"


def test_where_nothing_is_free_that_is_the_reason_of_what_does_not_name_it(
    turnwise_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    turnwise_home.mkdir()
    let_see(monkeypatch, full_disk, "shutil", disk_usage=lambda folder: Usage(10**9, 10**9, 0))
    with pytest.raises(DiskFull, match=r"0\.0.*\b500\b.*TW-full-disk"), report_full_disk():
        raise RuntimeError("500 of the server\nand more")
    with pytest.raises(ArtifactError, match="what is said on purpose"), report_full_disk():
        raise ArtifactError("what is said on purpose stays")
    with pytest.raises(DiskFull, match=NO_ROOM):
        require_room(turnwise_home)


def test_other_failures_are_left_as_they_are(turnwise_home: Path) -> None:
    errors = (ZeroDivisionError(), OSError(errno.EIO, "broken"), KeyError("name"))
    nowhere = FileNotFoundError(errno.ENOENT, "none", "/proc/nowhere")  # where nothing is free, ever
    for error in (*errors, nowhere):
        with pytest.raises(type(error)), report_full_disk():
            raise error
    require_room(turnwise_home.parent)


@pytest.fixture
def small_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A home on a disk of one megabyte."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)], capture_output=True)
    if mounted.returncode:
        pytest.skip("this user may not mount a small disk")
    monkeypatch.setenv("TURNWISE_HOME", str(folder))
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def write_weights(folder: Path) -> None:
    save_file({"weights": np.zeros(10**6, np.float32)}, folder / "model.safetensors")


def write_table(folder: Path) -> None:
    pq.write_table(pa.table({"tokens": np.random.default_rng(0).random(10**6)}), folder / "table.parquet")


def write_text(folder: Path) -> None:
    (folder / "text.json").write_text("x" * 4_000_000)


@pytest.mark.parametrize("write", [write_weights, write_table, write_text])
def test_an_artifact_that_a_real_disk_has_no_room_for_leaves_nothing(
    small_disk: Path, write: Callable[[Path], None]
) -> None:
    with (
        pytest.raises(DiskFull, match=str(small_disk)),
        report_full_disk(),
        default_store().write("policy") as draft,
    ):
        write(draft.folder)
    assert [path for path in small_disk.rglob("*") if path.is_file()] == []
    with default_store().write("policy") as draft:
        (draft.folder / "text.json").write_text("small")
    assert default_store().holds(draft.reference), "with room again, it goes on"
