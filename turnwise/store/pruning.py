"""Pruned files: the record of files removed from an artifact on purpose, and the locks that protect files being read.

    store/<kind>/<digest>.pruned.json    the files that may be missing

The record is written before a file is removed and is never withdrawn, not even where the file is restored. So at
whatever moment a process is killed, a file that is missing without a record is damage and nothing else.

The lock is a flock on the artifact's folder. Readers share it; a pruner needs it exclusively, and one that cannot have
it at once leaves the files to the next pruning.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

PRUNED = ".pruned.json"
"""What the name of a record ends with."""
MOST_LOCKED = 64
"""Most folders that one `reading` block keeps locked; beyond it the oldest lock is released, since that folder was
probably read long ago. Bounds the open file descriptors."""


class PrunedFiles(BaseModel):
    """What the record says."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    files: tuple[str, ...]
    """By path relative to the artifact's folder, in order."""


def recorded_in(record: Path) -> frozenset[str]:
    """The files that a record names; none where it is missing or unreadable, so that missing files count as damage."""
    try:
        return pruned_in(record.read_bytes())
    except FileNotFoundError:
        return frozenset()


def pruned_in(content: bytes) -> frozenset[str]:
    """The files that a record's content names; none where it cannot be read."""
    try:
        return frozenset(PrunedFiles.model_validate_json(content).files)
    except ValidationError:
        return frozenset()


_locked: ContextVar[dict[Path, int] | None] = ContextVar("locked", default=None)
"""The folders locked by the current `reading` block, each with its file descriptor; None outside of such a block."""


@contextmanager
def reading() -> Iterator[None]:
    """Protect every artifact that the store opens within the block from being pruned until the block ends.

    At most the last `MOST_LOCKED` of them.
    """
    locked: dict[Path, int] = {}
    token = _locked.set(locked)
    try:
        yield
    finally:
        _locked.reset(token)
        for descriptor in locked.values():
            os.close(descriptor)


@contextmanager
def shared(folder: Path) -> Iterator[None]:
    """Hold a shared lock on the folder: nobody prunes it until the block ends.

    Within a `reading` block the lock lasts until that one ends. A folder that does not exist is not locked.
    """
    locked = _locked.get()
    descriptor = None if locked is not None and folder in locked else _open(folder)
    if descriptor is None:
        yield
        return
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    if locked is not None:
        # A lock that outlives this block keeps a pruner away while the files are still being read.
        if len(locked) == MOST_LOCKED:
            os.close(locked.pop(next(iter(locked))))
        locked[folder] = descriptor
        yield
        return
    try:
        yield
    finally:
        os.close(descriptor)


@contextmanager
def alone(folder: Path) -> Iterator[bool]:
    """Try for an exclusive lock on the folder, and yield whether it was granted; if so, it lasts until the block ends.

    Yields False at once where somebody reads or prunes the folder, or where it does not exist.
    """
    descriptor = _open(folder)
    if descriptor is None:
        yield False
        return
    granted = False
    try:
        # Waiting could take as long as an evaluation; the files are removed by the next pruning instead.
        with suppress(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            granted = True
        yield granted
    finally:
        os.close(descriptor)


def _open(folder: Path) -> int | None:
    with suppress(FileNotFoundError, NotADirectoryError):
        return os.open(folder, os.O_RDONLY)
    return None
