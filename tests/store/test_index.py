"""The index of what was verified: bytes are not read twice, a change is always found, and losing it costs only time."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from turnwise.errors import ArtifactError
from turnwise.store import Reference, Store, artifacts


def write_sample(store: Store, text: str = "content") -> Reference:
    with store.write("sample") as draft:
        (draft.folder / "parts").mkdir()
        (draft.folder / "parts" / "one.txt").write_text(text)
        (draft.folder / "two.bin").write_bytes(b"\x00\xff")
    return draft.reference


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the files whose bytes have been read to verify them."""
    names: list[str] = []
    original = artifacts.sha256_of

    def sha256_of(path: Path) -> str:
        names.append(path.name)
        return original(path)

    monkeypatch.setattr(artifacts, "sha256_of", sha256_of)
    return names


def test_what_was_written_or_verified_is_not_read_again_by_another_process(tmp_path: Path, read: list[str]) -> None:
    reference = write_sample(Store(tmp_path))
    Store(tmp_path).folder(reference)
    assert read == []
    shutil.rmtree(tmp_path / ".verified")
    Store(tmp_path).folder(reference)
    assert read == ["one.txt", "two.bin"]
    Store(tmp_path).folder(reference)
    assert read == ["one.txt", "two.bin"]


def test_verify_reads_everything_whatever_the_index_says(tmp_path: Path, read: list[str]) -> None:
    store = Store(tmp_path)
    reference = write_sample(store)
    store.verify(reference)
    assert read == ["one.txt", "two.bin"]


def wait_for_the_next_tick() -> None:
    """A file system's clock stands still for some milliseconds, within which two changes look like one."""
    time.sleep(0.05)


def touch(path: Path) -> None:
    os.utime(path)


def replace(path: Path) -> None:
    at = path.stat()
    copy = path.with_name("copy")
    copy.write_bytes(path.read_bytes())
    os.utime(copy, ns=(at.st_atime_ns, at.st_mtime_ns))
    os.replace(copy, path)


def rewrite_in_place(path: Path) -> None:
    at = path.stat()
    path.write_bytes(path.read_bytes())
    os.utime(path, ns=(at.st_atime_ns, at.st_mtime_ns))


@pytest.mark.parametrize("change", [touch, replace, rewrite_in_place])
def test_a_file_that_was_touched_or_replaced_is_read_again(
    tmp_path: Path, read: list[str], change: Callable[[Path], None]
) -> None:
    reference = write_sample(Store(tmp_path))
    wait_for_the_next_tick()
    change(Store(tmp_path).folder(reference) / "two.bin")
    Store(tmp_path).folder(reference)
    assert read == ["one.txt", "two.bin"]
    Store(tmp_path).folder(reference)
    assert read == ["one.txt", "two.bin"], "and then it is known again"


def test_what_was_changed_without_a_trace_of_time_or_size_is_found_by_another_process(tmp_path: Path) -> None:
    reference = write_sample(Store(tmp_path))
    path = Store(tmp_path).folder(reference) / "two.bin"
    wait_for_the_next_tick()
    at = path.stat()
    path.write_bytes(b"\xff\x00")
    os.utime(path, ns=(at.st_atime_ns, at.st_mtime_ns))
    with pytest.raises(ArtifactError, match=r"two\.bin.*TW-damaged-artifact"):
        Store(tmp_path).folder(reference)


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b"\x00\xff\xfe" * 99])
def test_a_damaged_entry_costs_one_reading(tmp_path: Path, read: list[str], content: bytes) -> None:
    reference = write_sample(Store(tmp_path))
    (tmp_path / ".verified" / "sample" / reference.digest).write_bytes(content)
    Store(tmp_path).folder(reference)
    assert read == ["one.txt", "two.bin"]
    Store(tmp_path).folder(reference)
    assert read == ["one.txt", "two.bin"]


def test_an_index_that_cannot_be_written_stops_nothing(tmp_path: Path, read: list[str]) -> None:
    (tmp_path / ".verified").write_text("in the way")
    store = Store(tmp_path)
    reference = write_sample(store)
    store.folder(reference)
    assert read == [], "this process knows it"
    assert Store(tmp_path).holds(reference)
    assert read == ["one.txt", "two.bin"]


def test_an_entry_never_vouches_for_another_artifact(tmp_path: Path) -> None:
    store = Store(tmp_path)
    one, other = write_sample(store, "one"), write_sample(store, "two")
    entries = tmp_path / ".verified" / "sample"
    shutil.copy(entries / one.digest, entries / other.digest)
    shutil.rmtree(tmp_path / "sample" / other.digest)
    shutil.copytree(tmp_path / "sample" / one.digest, tmp_path / "sample" / other.digest)
    assert not Store(tmp_path).holds(other)


SCRIPT = """
import sys
import time
from pathlib import Path
from turnwise.store import Store
for number in range(40):
    store = Store(Path(sys.argv[1]))
    with store.write("sample") as draft:
        (draft.folder / "number.txt").write_text(str(number % 4))
    assert store.holds(draft.reference)
"""


def test_several_processes_write_the_index_at_once(tmp_path: Path) -> None:
    writers = [subprocess.Popen([sys.executable, "-c", SCRIPT, str(tmp_path)]) for _ in range(3)]
    assert [writer.wait() for writer in writers] == [0, 0, 0]
    found = [Reference(kind="sample", digest=path.name) for path in (tmp_path / ".verified" / "sample").iterdir()]
    assert len(found) == 4 and all(Store(tmp_path).holds(reference) for reference in found)
    assert list((tmp_path / ".drafts").iterdir()) == []
