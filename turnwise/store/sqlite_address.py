"""Addresses of SQLite files as SQLAlchemy reads them, which MLflow and Prefect do.

    /home/me/.turnwise/mlflow.db     sqlite:////home/me/.turnwise/mlflow.db
    /tmp/what?x=1/mlflow.db          sqlite+pysqlite:///file:/tmp/what%3Fx%3D1/mlflow.db?uri=true

SQLAlchemy ends a path at its first question mark and takes nothing in it for quoted, so such a path is given as a file
URI, which SQLite itself reads (https://sqlite.org/uri.html). The driver is named then: of an address that begins with
`sqlite:///` MLflow makes the folder, as if all after it were a path.
"""

from __future__ import annotations

from pathlib import Path
from urllib.parse import parse_qs, quote, unquote

_FILE = "file:"


def sqlite_address(path: Path, driver: str = "sqlite") -> str:
    """The address of a SQLite file; `driver` is `sqlite`, or with what reads it: `sqlite+aiosqlite`."""
    if "?" not in str(path):
        return f"{driver}:///{path}"
    named = driver if "+" in driver else f"{driver}+pysqlite"
    return f"{named}:///{_FILE}{quote(str(path))}?uri=true"


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
