"""The store's own index: which artifacts were found intact, and in what state their files were then.

    store/.verified/<kind>/<digest>

A process that finds the files of an artifact in the state that the index names need not read them. Each entry is a
file of its own that is replaced as a whole, so any number of processes may write at once. An index that is lost,
damaged or cannot be written costs time and nothing else: what it does not vouch for is read.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from turnwise.store.digests import canonical_json
from turnwise.store.manifest import Reference

INDEX = ".verified"


class FileState(NamedTuple):
    """What the file system says of one file without reading it: other after every write, touch or replacement."""

    name: str
    bytes: int
    written_ns: int
    changed_ns: int
    """When its content, name, mode or times were last changed: no program can set it back."""
    inode: int


def state_of(folder: Path) -> tuple[FileState, ...]:
    """The state of every file in the folder and below it, by name."""
    files = [(path, path.lstat()) for path in folder.rglob("*") if not path.is_dir()]
    return tuple(
        sorted(
            FileState(path.relative_to(folder).as_posix(), at.st_size, at.st_mtime_ns, at.st_ctime_ns, at.st_ino)
            for path, at in files
        )
    )


class VerifiedIndex:
    """What this process, or another before it, has verified."""

    def __init__(self, root: Path) -> None:
        self._root = root / INDEX
        self._known: dict[Reference, tuple[FileState, ...]] = {}

    def vouches_for(self, reference: Reference, state: tuple[FileState, ...]) -> bool:
        """Whether the artifact was found intact when its files were in this state."""
        if self._known.get(reference) == state:
            return True
        try:
            vouched = self._entry(reference).read_bytes() == _text(state)
        except OSError:  # none, or one that cannot be read: the files can
            return False
        if vouched:
            self._known[reference] = state
        return vouched

    def add(self, reference: Reference, state: tuple[FileState, ...], temporary: Path) -> None:
        """Remember that the artifact is intact in this state. `temporary` is a free name on the same disk."""
        self._known[reference] = state
        entry = self._entry(reference)
        with suppress(OSError):  # a full disk, or a store that may only be read: it is read again next time
            entry.parent.mkdir(parents=True, exist_ok=True)
            temporary.write_bytes(_text(state))
            os.replace(temporary, entry)

    def remove(self, reference: Reference) -> None:
        """Vouch for this artifact no longer."""
        self._known.pop(reference, None)
        with suppress(OSError):  # it vouches for a state that the files are not in
            self._entry(reference).unlink()

    def _entry(self, reference: Reference) -> Path:
        return self._root / reference.kind / reference.digest


def _text(state: tuple[FileState, ...]) -> bytes:
    return canonical_json(state).encode("utf-8", "surrogateescape")
