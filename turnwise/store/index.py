"""The index of verified artifacts: which were found intact, with the state (size, times, inode) of their files then.

    store/.verified/<kind>/<digest>

Files that are still in the recorded state need not be hashed again. Each entry is a file of its own that is replaced
atomically, so any number of processes may write at once. Losing or damaging the index, or being unable to write it,
costs time and nothing else: artifacts without a matching entry are read and hashed.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from turnwise.store.digests import canonical_json
from turnwise.store.files import files_below
from turnwise.store.manifest import Reference

INDEX = ".verified"


class FileState(NamedTuple):
    """File-system metadata of one file, found without reading it: differs after every write, touch or replacement."""

    name: str
    """Path relative to the artifact's folder, with forward slashes."""
    bytes: int
    written_ns: int
    """Modification time (mtime), nanoseconds since the epoch."""
    changed_ns: int
    """Change time (ctime), nanoseconds since the epoch: the last change of content, name, mode or times. No program can
    set it back."""
    inode: int


def state_of(folder: Path) -> tuple[FileState, ...]:
    """The states of all files in the folder and below it, sorted by name; links are not followed."""
    files = ((name, entry.stat(follow_symlinks=False)) for name, entry in files_below(folder))
    return tuple(sorted(FileState(name, at.st_size, at.st_mtime_ns, at.st_ctime_ns, at.st_ino) for name, at in files))


class VerifiedIndex:
    """The artifacts that this process or an earlier one has verified, in memory and on the disk."""

    def __init__(self, root: Path) -> None:
        self._root = root / INDEX
        self._known: dict[Reference, tuple[FileState, ...]] = {}

    def vouches_for(self, reference: Reference, state: tuple[FileState, ...]) -> bool:
        """Whether the artifact was verified while its files were in exactly this state."""
        if self._known.get(reference) == state:
            return True
        try:
            is_verified = self._entry(reference).read_bytes() == _text(state)
        except OSError:  # no entry, or an unreadable one: the caller reads the files instead
            return False
        if is_verified:
            self._known[reference] = state
        return is_verified

    def add(self, reference: Reference, state: tuple[FileState, ...], temporary: Path) -> None:
        """Record that the artifact is intact in this state. `temporary` is an unused path on the same file system."""
        self._known[reference] = state
        entry = self._entry(reference)
        with suppress(OSError):  # a full disk or a read-only store: the next process verifies again
            entry.parent.mkdir(parents=True, exist_ok=True)
            temporary.write_bytes(_text(state))
            os.replace(temporary, entry)

    def touch(self, reference: Reference) -> None:
        """Note that the artifact was opened now: its entry's time says so."""
        with suppress(OSError):  # an artifact without an entry counts as not used for longest
            os.utime(self._entry(reference))

    def remove(self, reference: Reference) -> None:
        """Forget that this artifact was verified."""
        self._known.pop(reference, None)
        with suppress(OSError):  # an entry that stays only matches if the files return to the recorded state
            self._entry(reference).unlink()

    def _entry(self, reference: Reference) -> Path:
        return self._root / reference.kind / reference.digest


def _text(state: tuple[FileState, ...]) -> bytes:
    return canonical_json(state).encode("utf-8", "surrogateescape")
