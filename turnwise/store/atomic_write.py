"""Files that a reader sees whole or not at all, and that are on the disk when a function returns."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path


def write_whole(path: Path, content: str | bytes) -> None:
    """Write to a temporary name beside `path` and rename; missing folders are made. Text is UTF-8."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    partial.write_bytes(content.encode() if isinstance(content, str) else content)
    os.replace(partial, path)


def write_together(folder: Path, files: Mapping[str, bytes], obsolete: Iterable[str] = ()) -> None:
    """Replace files of a folder, named by their paths in it, by ones that belong together; others stay.

    All are written beside the folder before the first is put in place: what cannot be written, on a full disk say,
    leaves everything as it was. Of two processes that write, the later one's files stay, all of them.

    Args:
        folder: made where it is missing.
        files: the content by path.
        obsolete: paths of a former set: those that `files` does not have are removed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    partial = folder.with_name(f".{folder.name}.{os.getpid()}.partial")
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        for name, content in files.items():
            (partial / name).parent.mkdir(parents=True, exist_ok=True)
            (partial / name).write_bytes(content)
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
    """Write UTF-8 text, and return when the disk holds it."""
    path.write_text(text, encoding="utf-8")
    sync(path)


def sync(path: Path) -> None:
    """Have the disk hold what was written to this file or folder before anything after it."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_file(path: Path) -> None:
    """Make an empty file, and the folders above it, as the umask says; one that is there stays as it is.

    SQLite gives a database that it makes itself to its owner alone to write.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(exist_ok=True)


def grant(folder: Path, mode: int) -> None:
    """Give the folder and all that is in it one mode, files without the right to run them.

    Some libraries write to a temporary file that only its owner may read and rename it, and copies keep the mode of
    their originals. A new folder has the mode that the umask, or the access control list above it, asks for.
    """
    folder.chmod(mode)
    for path in folder.rglob("*"):
        path.chmod(mode if path.is_dir() else mode & 0o666)
