"""External inputs of an experiment: files and models that it reads but did not make, identified by their content.

A stage that reads one takes an `Outside` as a parameter. Changed content changes the stage's cache key; moving the file
to another folder, or spelling its path differently, does not: see `turnwise.store.plugin_identity.known_by_content`.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from pathlib import Path

from turnwise.config.schema import Section
from turnwise.store.digests import digest_of, sha256_of


class Outside(Section):
    """Something from outside. A stage's cache key has its `content` and leaves its `place` out."""

    place: str
    """Where it is read: a path, or the name of a repository."""
    content: str
    """What is read there: a digest, or the name of a commit."""


def outside_file(path: Path) -> Outside:
    """An external file, identified by its SHA-256."""
    return Outside(place=str(path), content=cached_sha256(path))


def outside_files(folder: Path, files: Iterable[Path]) -> Outside:
    """Files of an external folder, identified by a digest of their relative paths and their contents."""
    return Outside(
        place=str(folder),
        content=digest_of({path.relative_to(folder).as_posix(): cached_sha256(path) for path in files}),
    )


def cached_sha256(path: Path) -> str:
    """The SHA-256 of a file's content, in hexadecimal.

    Cached per process; the file is read again only when its size, times or inode have changed.
    """
    # The state is an argument of the cached function, so that a changed file is another entry of the cache.
    found = path.stat()
    return _sha256(path.resolve(), (found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino))


@cache
def _sha256(path: Path, state: tuple[int, ...]) -> str:
    return sha256_of(path)
