"""Recognition of a full disk: one clear error, whichever library ran into it.

Python's own functions raise an OSError with an errno; safetensors, SQLite and their wrappers raise classes of their
own whose text mentions it. A server that lost its database for lack of space does not mention it at all.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from turnwise.errors import ConfigurationError, DiskFull, TurnwiseError, first_line
from turnwise.project import home

FULL = (errno.ENOSPC, errno.EDQUOT)
SAYINGS = (*map(os.strerror, FULL), "database or disk is full")
NOTHING_LEFT = 64 * 1024
"""Bytes. With less than this free, an error that does not mention space is put down to the full disk."""


@contextmanager
def report_full_disk() -> Iterator[None]:
    """Turn an exception of the block that a full disk caused into a DiskFull that names the folder.

    Other exceptions, and Turnwise's own, pass unchanged.

    Raises:
        DiskFull: the disk written to (the home's, where the error names no file) is full, or the user's quota is used
            up.
    """
    try:
        yield
    except TurnwiseError:
        raise
    except Exception as error:
        folder = _written_to(error)
        if not (_says_full(error) or _is_full(folder)):
            raise
        raise _disk_full(folder, first_line(error)) from error


def require_room(folder: Path) -> None:
    """Raise DiskFull where the folder's disk has no space left. Called after a failure, to explain it."""
    if _is_full(folder):
        raise _disk_full(folder, os.strerror(errno.ENOSPC))


def _disk_full(folder: Path, why: str) -> DiskFull:
    return DiskFull(
        f"the disk of {folder} must have room for what is computed; {_free_bytes(folder) / 1e6:.1f} MB are free "
        f"({why}): make room there, `turnwise prune` removes what can be made again, and give the same command again, "
        "which goes on where this one stopped",
        "TW-full-disk",
    )


def _is_full(folder: Path) -> bool:
    """Whether the folder's disk has no space left; what holds no data, such as /proc, is never full."""
    disk = os.statvfs(folder)
    return disk.f_blocks > 0 and not disk.f_flag & os.ST_RDONLY and _free_bytes(folder) < NOTHING_LEFT


def _says_full(error: BaseException | None) -> bool:
    """Whether this error, or one in its chain of causes, says that the disk is full."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in FULL:
            return True
        if any(saying in str(error) for saying in SAYINGS):
            return True
        error = error.__cause__
    return False


def _written_to(error: Exception) -> Path:
    """The folder that was written to: that of the file which the error names, else the home, else the current folder.

    A folder that does not exist is replaced by its nearest existing parent.
    """
    if isinstance(error, OSError) and isinstance(error.filename, str):
        return _existing(Path(error.filename).absolute().parent)
    try:
        return _existing(home())
    except ConfigurationError:
        return Path.cwd()


def _existing(folder: Path) -> Path:
    while not folder.exists():
        folder = folder.parent
    return folder


def _free_bytes(folder: Path) -> int:
    return shutil.disk_usage(folder).free
