"""Files that a reader sees whole or not at all, and that are on the disk when a function returns."""

from __future__ import annotations

import os
from pathlib import Path


def write_whole(path: Path, content: str | bytes) -> None:
    """Write to a temporary name beside `path` and rename; missing folders are made. Text is UTF-8."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    partial.write_bytes(content.encode() if isinstance(content, str) else content)
    os.replace(partial, path)


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


def grant(folder: Path, mode: int) -> None:
    """Give the folder and all that is in it one mode, files without the right to run them.

    Some libraries write to a temporary file that only its owner may read and rename it, and copies keep the mode of
    their originals. A new folder has the mode that the umask, or the access control list above it, asks for.
    """
    folder.chmod(mode)
    for path in folder.rglob("*"):
        path.chmod(mode if path.is_dir() else mode & 0o666)
