"""A full disk, told in one sentence whatever library met it.

Python's own functions raise an OSError with a number; safetensors, SQLite and what wraps them raise classes of their
own, whose text says it. A server that lost its database for want of room says nothing of it at all.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from turnwise.errors import ConfigurationError, DiskFull, TurnwiseError
from turnwise.store.paths import home

FULL = (errno.ENOSPC, errno.EDQUOT)
SAYINGS = (*map(os.strerror, FULL), "database or disk is full")
NOTHING_LEFT = 64 * 1024
"""With fewer bytes free, want of room is the reason of an error that says nothing of it."""


@contextmanager
def telling_of_a_full_disk() -> Iterator[None]:
    """Turn the failure of the block, where its reason is a full disk, into one sentence that names the folder.

    Raises:
        DiskFull: there is no room on the disk of the home, or the user's quota is used up.
    """
    try:
        yield
    except TurnwiseError:
        raise
    except Exception as error:
        folder = _written_to(error)
        if not (_says_full(error) or _is_full(folder)):
            raise
        raise _told(folder, _first_line(error)) from error


def require_room(folder: Path) -> None:
    """Raise DiskFull where nothing is left on the folder's disk: the reason of what has just failed there."""
    if _is_full(folder):
        raise _told(folder, os.strerror(errno.ENOSPC))


def _told(folder: Path, why: str) -> DiskFull:
    return DiskFull(
        f"the disk of {folder} must have room for what is computed; {_free_bytes(folder) / 1e6:.1f} MB are free "
        f"({why}): make room there, `turnwise prune` removes what can be made again, and give the same command again, "
        "which goes on where this one stopped"
    )


def _is_full(folder: Path) -> bool:
    return _free_bytes(folder) < NOTHING_LEFT


def _says_full(error: BaseException | None) -> bool:
    """Whether this error, or one that it was raised from, says that the disk is full."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in FULL:
            return True
        if any(saying in str(error) for saying in SAYINGS):
            return True
        error = error.__cause__
    return False


def _written_to(error: Exception) -> Path:
    """The folder of the file that the error names; where it names none the home, or the folder outside of a project."""
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


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)
