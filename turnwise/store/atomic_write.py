"""Atomic and durable writes: a reader sees a whole file or none, and a synced file survives a crash."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path

from turnwise.store.files import files_below, folders_of


def write_whole(path: Path, content: str | bytes) -> None:
    """Write a file atomically: to a temporary name next to `path`, then renamed. Makes missing folders; text is UTF-8.

    Not synced: after a power failure the file may be empty or missing.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # In the same folder, since a rename is atomic within one file system only; by process, so that two do not mix.
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    partial.write_bytes(content.encode() if isinstance(content, str) else content)
    os.replace(partial, path)


def write_together(folder: Path, files: Mapping[str, bytes], obsolete: Iterable[str] = ()) -> None:
    """Replace a set of files in a folder together; its other files stay.

    All are written to a temporary folder next to it before the first is moved into place, so that a failed write (a
    full disk, say) leaves everything as it was. A lock makes writers take turns: of two, the later one's set stays
    whole. A reader may still see a mixture while files are being moved.

    Args:
        folder: made where it is missing.
        files: contents by path relative to `folder`.
        obsolete: relative paths of an earlier set; those that are not in `files` are removed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    partial = folder.with_name(f".{folder.name}.{os.getpid()}.partial")
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        for name, content in files.items():
            (partial / name).parent.mkdir(parents=True, exist_ok=True)
            (partial / name).write_bytes(content)
        # Locked only now: writing is long and may fail, moving is short.
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        for name in files:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            os.replace(partial / name, folder / name)
        for name in set(obsolete) - set(files):
            (folder / name).unlink(missing_ok=True)
    finally:
        os.close(descriptor)
        shutil.rmtree(partial, ignore_errors=True)


def write_durably(path: Path, text: str) -> None:
    """Write UTF-8 text and sync it: the text is on the disk on return. The write is not atomic."""
    with path.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def sync(path: str | Path) -> None:
    """Flush a file or folder to the disk (fsync), so that it is there before anything that is written afterwards."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_file(path: Path) -> None:
    """Make an empty file and its parent folders with the umask's permissions; an existing file stays unchanged.

    For SQLite databases: one that SQLite makes itself can be written to by its owner alone.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(exist_ok=True)


def grant(folder: Path, mode: int) -> None:
    """Set one permission mode on a folder and everything in it; files get it without the execute bits.

    Needed because some libraries write a temporary file that only its owner may read and rename it, and copies keep
    the mode of their originals. A caller passes the mode of a newly made folder, which follows the umask or the
    inherited access control list.
    """
    for path in folders_of(folder):
        os.chmod(path, mode)
    for _, entry in files_below(folder):
        os.chmod(entry.path, mode & 0o666)
