"""Whether the MLflow that is installed can read a database: checked before MLflow opens it.

Every database names the revision of its tables. MLflow calls every other one out of date, also a newer one, and begins
to migrate an old one that lacks a table, without a copy.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from importlib.metadata import version
from pathlib import Path
from typing import Any

from turnwise.errors import ConfigurationError
from turnwise.store.sqlite_files import sqlite_file
from turnwise.tracking.library import mlflow

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
    found = _revision(tracking_uri)
    if found in (None, TABLES):
        return
    migrations = _migrations()
    if found == migrations.get_current_head():
        return
    path, installed = sqlite_file(tracking_uri), version("mlflow")
    place = _without_password(tracking_uri) if path is None else str(path)
    must = f"the database at tracking.uri must have the tables of MLflow {installed}, which is installed; {place}"
    if found not in {script.revision for script in migrations.walk_revisions()}:
        raise ConfigurationError(
            f"{must} was made by a newer MLflow (revision {found}): install that version, or give tracking.uri another "
            "database",
            "TW-tracking-revision",
        )
    raise ConfigurationError(
        f"{must} was made by an older one (revision {found}): copy it, then "
        f"`mlflow db upgrade '{_without_password(tracking_uri)}'`",
        "TW-tracking-revision",
    )


def _revision(tracking_uri: str) -> str | None:
    """The revision of the database's tables; None where none can be read."""
    query, path = "SELECT version_num FROM alembic_version", sqlite_file(tracking_uri)
    if path is not None:
        return _revision_of_file(path, query) if path.is_file() else None
    from sqlalchemy import create_engine, text
    from sqlalchemy.exc import SQLAlchemyError

    try:
        engine = create_engine(tracking_uri)
        try:
            with engine.connect() as connection:
                row = connection.execute(text(query)).first()
        finally:
            engine.dispose()
    except (SQLAlchemyError, ImportError):  # MLflow, which opens it next, waits for it or says what is wrong
        return None
    return None if row is None else str(row[0])


def _revision_of_file(path: Path, query: str) -> str | None:
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", 60.0, uri=True)) as database:
        try:
            row = database.execute(query).fetchone()
        except sqlite3.DatabaseError:  # no database, or one without tables: MLflow makes them or says what is wrong
            return None
    return None if row is None else str(row[0])


def _migrations() -> Any:
    """The revisions that the installed MLflow knows: Alembic's `ScriptDirectory`."""
    from alembic.script import ScriptDirectory

    (package,) = mlflow().__path__
    return ScriptDirectory(str(Path(package) / "store" / "db_migrations"))


def _without_password(tracking_uri: str) -> str:
    from sqlalchemy import make_url

    return make_url(tracking_uri).render_as_string(hide_password=True)
