"""Pruned files: those that were removed from an artifact on purpose, and the locks that keep them while they are read.

    store/<kind>/<digest>.pruned.json    the files that may be missing

The record is on the disk before a file is removed and is never taken back, also where the file is made again: whenever
a process is killed, a file that is missing without a record is damage and nothing else.

A lock is flock's on the artifact's folder. Readers share it and a pruner wants it alone: one that cannot have it at
once leaves the files to the next.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

MOST_LOCKED = 64
"""Folders that `reading` keeps locked; what was asked for before them has been read."""


class PrunedFiles(BaseModel):
    """What the record says."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    files: tuple[str, ...]
    """By path relative to the artifact's folder, in order."""


def recorded_in(record: Path) -> frozenset[str]:
    """The files that a record names; none where it is missing or cannot be read, and then their absence is damage."""
    try:
        return frozenset(PrunedFiles.model_validate_json(record.read_bytes()).files)
    except (FileNotFoundError, ValidationError):
        return frozenset()


_locked: ContextVar[dict[Path, int] | None] = ContextVar("locked", default=None)
"""The folders that are locked for reading until the block of `reading` ends, each with its descriptor."""


@contextmanager
def reading() -> Iterator[None]:
    """Until the block ends, nobody prunes the artifacts whose folders the store has named in it."""
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
    """Nobody prunes the folder until the block ends, and until that of `reading` does where there is one."""
    locked = _locked.get()
    if locked is not None and folder in locked:
        yield
        return
    descriptor = _open(folder)
    if descriptor is None:
        yield
        return
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    if locked is not None:
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
    """Whether nobody reads or prunes the folder. Where that is so it stays so until the block ends."""
    descriptor = _open(folder)
    if descriptor is None:
        yield False
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        yield False
        return
    try:
        yield True
    finally:
        os.close(descriptor)


def _open(folder: Path) -> int | None:
    with suppress(FileNotFoundError, NotADirectoryError):
        return os.open(folder, os.O_RDONLY)
    return None
