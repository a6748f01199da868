"""The bound of the local store where it is the cache of a shared one: what to free, the least recently used first.

An artifact was last used when it was last opened, which is kept as the time of its entry in the index of verified
artifacts. What was opened a moment ago stays, since its reader may not have come to its files yet.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from turnwise.store.files import files_below
from turnwise.store.index import INDEX
from turnwise.store.manifest import MANIFEST, Reference

STAYS_FOR_SECONDS = 60.0
"""For so long after it was opened an artifact stays, whoever holds no lock on it."""
LOOKED_AT_AGAIN = 0.05
"""Share of the bound that a process adds before it looks again at what all processes have added."""


class Cached(NamedTuple):
    """An artifact in the local store."""

    used: float
    """When it was last opened, in seconds since the epoch; 0 where that is not known."""
    reference: Reference
    bytes: int
    """Of its files; the manifest, which always stays, does not count."""


def cached(root: Path) -> list[Cached]:
    """The artifacts of a local store that hold files, the least recently used first."""
    found = []
    for folder in root.glob("[a-z]*/*/"):
        if "." in folder.name:
            continue
        size = sum(entry.stat().st_size for name, entry in files_below(folder) if name != MANIFEST)
        if size:
            used = 0.0
            with suppress(FileNotFoundError):
                used = (root / INDEX / folder.parent.name / folder.name).stat().st_mtime
            found.append(Cached(used, Reference(kind=folder.parent.name, digest=folder.name), size))
    return sorted(found, key=lambda each: (each.used, str(each.reference)))


class CacheRoom:
    """What one process has added to the local store since it last looked whether that is too much."""

    def __init__(self, root: Path, most_bytes: int | None) -> None:
        self._root, self._most = root, most_bytes
        self._added: float = float("inf")  # what earlier processes have left
        self._over = 0

    def to_free(self, added: int) -> Iterator[Reference]:
        """After so many bytes were added: artifacts to free, until `freed` has been told of enough bytes."""
        if self._most is None:
            return
        self._added += added
        if self._added < LOOKED_AT_AGAIN * self._most:
            return
        self._added = 0
        found = cached(self._root)
        self._over = sum(each.bytes for each in found) - self._most
        for each in found:
            if self._over <= 0 or time.time() - each.used < STAYS_FOR_SECONDS:
                return
            yield each.reference

    def freed(self, freed: int) -> None:
        """So many bytes were freed."""
        self._over -= freed
