"""The files of an artifact's folder, listed with few system calls: every stage lists some."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from fnmatch import fnmatchcase
from os import DirEntry
from pathlib import Path


def files_below(folder: Path) -> Iterator[tuple[str, DirEntry[str]]]:
    """Every file in the folder and below it, in no order: its path relative to the folder, with `/`, and its entry.

    Whatever is not a folder counts as a file; links are not followed. A folder that does not exist has no files.
    """
    yield from _below(os.fspath(folder), "")


def sizes_below(folder: Path) -> Iterator[tuple[str, int]]:
    """The bytes of every file in the folder and below it, by its relative path; links do not count.

    A file that another process removes meanwhile is left out.
    """
    for name, entry in files_below(folder):
        with suppress(FileNotFoundError):
            if entry.is_file(follow_symlinks=False):
                yield name, entry.stat(follow_symlinks=False).st_size


def matching(names: Iterable[str], patterns: Iterable[str]) -> list[str]:
    """The names that match one of these patterns (e.g. `model*`), in order."""
    wanted = list(patterns)
    return [name for name in names if any(fnmatchcase(name, pattern) for pattern in wanted)]


def folders_of(folder: Path) -> Iterator[str]:
    """The paths of the folder and of all folders below it; links are not followed."""
    return (path for path, _, _ in os.walk(folder))


def _below(folder: str, prefix: str) -> Iterator[tuple[str, DirEntry[str]]]:
    with suppress(FileNotFoundError, NotADirectoryError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                yield from _below(entry.path, f"{prefix}{entry.name}/")
            else:
                yield f"{prefix}{entry.name}", entry
