"""SQLite files: their addresses as SQLAlchemy reads them, which MLflow and Prefect do, and prepared ones to copy.

    /home/me/.turnwise/mlflow.db     sqlite:////home/me/.turnwise/mlflow.db
    /tmp/what?x=1/mlflow.db          sqlite+pysqlite:///file:/tmp/what%3Fx%3D1/mlflow.db?uri=true

SQLAlchemy ends a path at its first question mark and takes nothing in it for quoted, so such a path is given as a file
URI, which SQLite itself reads (https://sqlite.org/uri.html). The driver is named then: of an address that begins with
`sqlite:///` MLflow makes the folder, as if all after it were a path.

A library makes its tables in seconds, so they are made once per installation and copied for every home:

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
from urllib.parse import parse_qs, quote, unquote

from turnwise.store.atomic_write import make_file

_FILE = "file:"


def sqlite_address(path: Path, driver: str = "sqlite") -> str:
    """The address of a SQLite file; `driver` is `sqlite`, or with what reads it: `sqlite+aiosqlite`."""
    if "?" not in str(path):
        return f"{driver}:///{path}"
    dialect = driver if "+" in driver else f"{driver}+pysqlite"
    return f"{dialect}:///{_FILE}{quote(str(path))}?uri=true"


def sqlite_file(address: str) -> Path | None:
    """The path of a SQLite database; None for a database in memory, another kind of database, or a server."""
    scheme, slashes, rest = address.partition(":///")
    if not slashes or scheme.partition("+")[0] != "sqlite":
        return None
    name, _, query = rest.partition("?")
    settings = parse_qs(query)
    if "memory" in settings.get("mode", []):
        return None
    if name.startswith(_FILE) and settings.get("uri") == ["true"]:
        name = unquote(name.removeprefix(_FILE))
        name = f"/{name.lstrip('/')}" if name.startswith("/") else name
    return Path(name) if name and name != ":memory:" else None


def copy_prepared(name: str, path: Path) -> bool:
    """Copy the prepared database of this name to `path`, atomically. False where there is none."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    make_file(partial)
    try:
        shutil.copyfile(_prepared_path(name), partial)
    except (FileNotFoundError, NotADirectoryError):
        partial.unlink()
        return False
    os.replace(partial, path)
    return True


def keep_prepared(name: str, path: Path) -> None:
    """Keep a copy of the database, which holds the tables alone, unless one is kept already."""
    copy_path = _prepared_path(name)
    if copy_path.exists():
        return
    partial = copy_path.with_name(f".{copy_path.name}.{os.getpid()}.partial")
    with suppress(OSError, sqlite3.Error):
        copy_path.parent.mkdir(parents=True, exist_ok=True)
        with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(partial)) as copy:
            source.backup(copy)
        os.replace(partial, copy_path)


def _prepared_path(name: str) -> Path:
    return Path(sys.prefix) / "share" / "turnwise" / f"{name}.db"
