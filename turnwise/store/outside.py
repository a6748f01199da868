"""What an experiment reads and did not make: files and models, known by their content and not by where they lie.

A stage that reads such a thing has an `Outside` among its parameters. Another content is another cache key; another
folder, or another spelling of its path, is not: see `tasks.identity`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from turnwise.config.schema import Section
from turnwise.store.digests import digest_of


class Outside(Section):
    """Something from outside. A stage's cache key has its `content` and leaves its `place` out."""

    place: str
    """Where it is read: a path, or the name of a repository."""
    content: str
    """What is read there: a digest, or the name of a commit."""


def outside_file(path: Path) -> Outside:
    """A file, known by its SHA-256."""
    return Outside(place=str(path), content=sha256_of(path))


def outside_files(folder: Path, files: Iterable[Path]) -> Outside:
    """Files of a folder, known by a digest of their names in it and their contents."""
    return Outside(
        place=str(folder), content=digest_of({path.relative_to(folder).as_posix(): sha256_of(path) for path in files})
    )


def sha256_of(path: Path) -> str:
    """The digest of a file's content. A process reads a file once, and again when it was touched or replaced."""
    found = path.stat()
    return _sha256(path.resolve(), (found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino))


@cache
def _sha256(path: Path, state: tuple[int, ...]) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
