"""SQLite databases whose tables a library makes in seconds, made once per installation and copied for every home.

    <environment>/share/turnwise/<name>.db    the tables of one version of a library, and nothing of any home

`name` holds the library's version, so that another version's tables are made anew. Where the environment cannot be
written to, nothing is kept, and every database is made by its library.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import sys
from contextlib import closing, suppress
from pathlib import Path

from turnwise.store.atomic_write import make_file


def copy_prepared(name: str, path: Path) -> bool:
    """Copy the prepared database of this name to `path`, atomically. False where there is none."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    make_file(partial)
    try:
        shutil.copyfile(_prepared(name), partial)
    except (FileNotFoundError, NotADirectoryError):
        partial.unlink()
        return False
    os.replace(partial, path)
    return True


def keep_prepared(name: str, path: Path) -> None:
    """Keep a copy of the database, which holds the tables alone, unless one is kept already."""
    kept = _prepared(name)
    if kept.exists():
        return
    partial = kept.with_name(f".{kept.name}.{os.getpid()}.partial")
    with suppress(OSError, sqlite3.Error):
        kept.parent.mkdir(parents=True, exist_ok=True)
        with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(partial)) as copy:
            source.backup(copy)
        os.replace(partial, kept)


def _prepared(name: str) -> Path:
    return Path(sys.prefix) / "share" / "turnwise" / f"{name}.db"
