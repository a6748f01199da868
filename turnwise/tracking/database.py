"""Creation and locking of MLflow's database: created atomically, by one process at a time.

MLflow creates its tables one after the other, and two processes that do so at once end in `table ... already exists`.
So opening a database here takes a lock (which the kernel releases if its holder dies), and a new SQLite file is
created under a temporary name and renamed when its tables are complete: a process that is killed on the way leaves no
incomplete database.

    mlflow.db            the database
    mlflow.db.lock       locked while it is opened, and while a run's records are compared and written
    .mlflow.db.partial   a database that is being created

Every database names the revision of its tables. MLflow calls every other one out of date, also a newer one, and begins
to migrate an old one that lacks a table, without a copy.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import socket
import sqlite3
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies

from turnwise.errors import ConfigurationError, first_line
from turnwise.store.atomic_write import make_file
from turnwise.store.sqlite_files import copy_prepared, keep_prepared, sqlite_address, sqlite_file
from turnwise.tracking.library import mlflow
from turnwise.tracking.locations import SECONDS_TO_WAIT, follow_home, relocation

SECONDS_TO_CONNECT = 10.0


def open_client(tracking_uri: str) -> Any:
    """MLflow's client of a database or a server. A database that does not exist is created, with its folder.

    Not to be called within `alone`, unless the database's tables are the known ones. Raises ConfigurationError where
    the installed MLflow cannot read the database, since another version made it.
    """
    with known_tables(tracking_uri) as complete:
        known = complete is not None
    if known:
        follow_move(tracking_uri)
        return mlflow().MlflowClient(tracking_uri)
    require_readable(tracking_uri)
    with alone(tracking_uri):
        make_database(tracking_uri)
        return mlflow().MlflowClient(tracking_uri)


@contextmanager
def known_tables(tracking_uri: str) -> Iterator[sqlite3.Connection | None]:
    """The database, opened for reading, if it is a SQLite file that holds the tables of revision `TABLES`; else None.

    Those can be read without MLflow, whose import takes seconds.
    """
    path = sqlite_file(tracking_uri)
    if path is None or not path.is_file():
        yield None
        return
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", SECONDS_TO_WAIT, uri=True)) as database:
        try:
            revision = database.execute("SELECT version_num FROM alembic_version").fetchall()
        except sqlite3.DatabaseError:
            revision = []
        yield database if revision == [(TABLES,)] else None


def require_store(tracking_uri: str) -> None:
    """Raise ConfigurationError unless runs can be recorded at this address. A missing database is created."""
    require_server(tracking_uri)
    path = sqlite_file(tracking_uri)
    if path is not None and path.exists() and not (path.is_file() and os.access(path, os.W_OK)):
        raise ConfigurationError(
            f"tracking.uri must name a database that can be written to; {path} cannot", "TW-tracking-unusable"
        )
    with known_tables(tracking_uri) as database:
        if database is not None:
            return
    mlflow()
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import SQLAlchemyError

    try:
        open_client(tracking_uri).search_experiments(max_results=1)
    except (MlflowException, SQLAlchemyError, OSError, ImportError) as error:
        place = place_of(tracking_uri)
        raise ConfigurationError(
            f"tracking.uri must name a store that can be opened; {place}: "
            f"{first_line(error).replace(tracking_uri, place)}",
            "TW-tracking-unusable",
        ) from error


def require_server(tracking_uri: str) -> None:
    """Raise ConfigurationError where no server listens. Checked first since MLflow would retry for minutes.

    Does nothing for a database, or where a proxy is configured.
    """
    parts = urlsplit(tracking_uri)
    if parts.scheme not in ("http", "https") or parts.hostname is None or parts.scheme in getproxies():
        return
    try:
        port = parts.port or {"http": 80, "https": 443}[parts.scheme]
        socket.create_connection((parts.hostname, port), timeout=SECONDS_TO_CONNECT).close()
    except (OSError, ValueError) as error:  # a port may be too high
        raise ConfigurationError(
            "tracking.uri, or the address that is read, must be that of a server that listens; "
            f"{place_of(tracking_uri)}: {error}: start it with mlflow server, or give another",
            "TW-tracking-unreachable",
        ) from error


def prepare_database(tracking_uri: str) -> None:
    """Create the SQLite file of this address unless it exists, so that whoever opens it next finds it complete.

    Raises ConfigurationError where another version of MLflow made it.
    """
    with known_tables(tracking_uri) as complete:
        known = complete is not None
    if not known:
        require_readable(tracking_uri)
    if not _is_made(tracking_uri):
        with alone(tracking_uri):
            make_database(tracking_uri)
    follow_move(tracking_uri)


def follow_move(tracking_uri: str) -> None:
    """Have the database of a home that was moved or copied name the files that lie there now."""
    with known_tables(tracking_uri) as database:
        path = sqlite_file(tracking_uri)
        moved = database is not None and path is not None and relocation(database, path) is not None
    if moved and path is not None:
        follow_home(path)


def make_database(tracking_uri: str) -> None:
    """Create the SQLite file of this address unless it exists. Call it within `alone`."""
    if _is_made(tracking_uri):
        return
    path = sqlite_file(tracking_uri)
    assert path is not None, "what is no SQLite file counts as made"
    partial, artifacts = path.with_name(f".{path.name}.partial"), (path.parent.absolute() / "mlruns").as_uri()
    for left_behind in (partial, partial.with_name(f"{partial.name}-journal")):
        left_behind.unlink(missing_ok=True)
    tables = f"mlflow-{version('mlflow')}"
    if copy_prepared(tables, partial):
        _set_default_experiment(partial, artifacts)
    else:
        mlflow()
        from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

        make_file(partial)
        store = SqlAlchemyStore(sqlite_address(partial), artifacts)
        store.engine.dispose()
        keep_prepared(tables, partial)
    os.replace(partial, path)


def _set_default_experiment(path: Path, artifacts: str) -> None:
    """Give MLflow's experiment `Default`, which every database begins with, this folder and the time of now."""
    now = int(time.time() * 1000)
    with closing(sqlite3.connect(path)) as database, database:
        database.execute(
            "UPDATE experiments SET artifact_location = ?, creation_time = ?, last_update_time = ?",
            (f"{artifacts}/0", now, now),
        )


@contextmanager
def alone(tracking_uri: str) -> Iterator[None]:
    """Hold the tracking store's lock, which excludes the other processes of this machine. Not reentrant.

    A folder that cannot be written to is not locked, since its database can only be read.
    """
    lock = _lock_file(tracking_uri)
    lock.parent.mkdir(parents=True, exist_ok=True)
    if not os.access(lock.parent, os.W_OK):
        yield
        return
    with lock.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def has_own_artifacts(tracking_uri: str) -> bool:
    """Whether a server answers at this address, which knows where artifacts go; a database does not."""
    return urlsplit(tracking_uri).scheme.partition("+")[0] not in DATABASES


def place_of(tracking_uri: str) -> str:
    """Host and port, or the file of a database, without whatever else an address may hold, such as a password."""
    if (path := sqlite_file(tracking_uri)) is not None:
        return str(path)
    parts = urlsplit(tracking_uri)
    return parts.netloc.rpartition("@")[2] or parts.path


def _is_made(tracking_uri: str) -> bool:
    path = sqlite_file(tracking_uri)
    return path is None or (path.is_file() and path.stat().st_size > 0)


def _lock_file(tracking_uri: str) -> Path:
    """The lock file: next to a SQLite file; for other stores, in the folder for temporary files, one per user."""
    path = sqlite_file(tracking_uri)
    if path is not None:
        return path.with_name(f"{path.name}.lock")
    digest = hashlib.blake2b(tracking_uri.encode(), digest_size=8).hexdigest()
    return Path(tempfile.gettempdir()) / f"turnwise-{os.getuid()}-{digest}.lock"


TABLES = "dc11669786a5"
"""The revision of MLflow's tables that is known here: that of the MLflow in requirements/cpu.lock."""
DATABASES = ("sqlite", "postgresql", "mysql", "mssql")
"""The schemes of the addresses that MLflow opens as a database itself; any other is a server's."""


def require_readable(tracking_uri: str) -> None:
    """Raise ConfigurationError where the database's tables are of another revision than the installed MLflow's.

    A server answers for its own database, and one that holds no tables yet, or does not answer, is left to MLflow.
    """
    if tracking_uri.partition(":")[0].partition("+")[0] not in DATABASES:
        return
    revision = _revision(tracking_uri)
    if revision in (None, TABLES):
        return
    migrations = _migrations()
    if revision == migrations.get_current_head():
        return
    path, installed = sqlite_file(tracking_uri), version("mlflow")
    place = _without_password(tracking_uri) if path is None else str(path)
    must = f"the database at tracking.uri must have the tables of MLflow {installed}, which is installed; {place}"
    if revision not in {script.revision for script in migrations.walk_revisions()}:
        raise ConfigurationError(
            f"{must} was made by a newer MLflow (revision {revision}): install that version, or give tracking.uri "
            "another database",
            "TW-tracking-revision",
        )
    raise ConfigurationError(
        f"{must} was made by an older one (revision {revision}): copy it, then "
        f"`mlflow db upgrade '{_without_password(tracking_uri)}'`",
        "TW-tracking-revision",
    )


def _revision(tracking_uri: str) -> str | None:
    """The revision of the database's tables; None where none can be read."""
    if (path := sqlite_file(tracking_uri)) is not None and not path.is_file():
        return None
    from alembic.migration import MigrationContext
    from sqlalchemy import create_engine
    from sqlalchemy.exc import SQLAlchemyError

    try:
        engine = create_engine(tracking_uri)
        try:
            with engine.connect() as connection:
                return MigrationContext.configure(connection).get_current_revision()
        finally:
            engine.dispose()
    except (SQLAlchemyError, ImportError):  # MLflow, which opens it next, waits for it or says what is wrong
        return None


def _migrations() -> Any:
    """The revisions that the installed MLflow knows: Alembic's `ScriptDirectory`."""
    from alembic.script import ScriptDirectory

    (package,) = mlflow().__path__
    return ScriptDirectory(str(Path(package) / "store" / "db_migrations"))


def _without_password(tracking_uri: str) -> str:
    from sqlalchemy import make_url

    return make_url(tracking_uri).render_as_string(hide_password=True)
