"""Where MLflow's files of a home lie: with the home, also after it was moved or copied.

MLflow writes absolute places of files into its database: of an experiment, a run, a model, a trace. The database of a
home knows where it lay when it wrote them, since every database begins with the experiment `Default`, whose place is
`<home>/mlruns/0`. Where that is another folder now, places are read as if they began with the folder of today
(`Relocation.place`), and are written so before MLflow next opens the database (`follow_home`). MLflow has no public
call for it; only tables of the known revision are changed.

A database outside of a home, which several projects may share, names the places that it was told.
"""

from __future__ import annotations

import json
import os
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

DATABASE = "mlflow.db"
FILES = "mlflow"
"""The folder of a home in which MLflow's files lie."""
_BEGINNINGS = ("/mlruns/0", f"/{FILES}")
"""How the places of the first experiments end, below the home's folder."""
_PLACES = (
    ("experiments", "artifact_location"),
    ("runs", "artifact_uri"),
    ("logged_models", "artifact_location"),
    ("trace_tags", "value"),
    ("model_versions", "source"),
    ("model_versions", "storage_location"),
)
"""Tables and columns that hold places, each as a path or a file URI."""
SECONDS_TO_WAIT = 60.0
"""For a process that writes to a SQLite file."""
HOME = "turnwise.home"
"""The tag that names the home, the folder of everything computed, which a run is recorded from."""


@dataclass(frozen=True)
class Relocation:
    """A home that lies in another folder than the one in which its database's places were written."""

    former: Path
    now: Path

    @property
    def prefixes(self) -> tuple[tuple[str, str], ...]:
        """How a place began, and how it begins now: as a file URI, and as a path, which becomes a file URI."""
        uri = f"{self.now.as_uri()}/"
        return ((f"{self.former.as_uri()}/", uri), (f"{self.former}/", uri))

    def place(self, location: str) -> str:
        """The place of today; as recorded, where it was not in the former folder."""
        for before, now in self.prefixes:
            if location.startswith(before):
                return f"{now}{location.removeprefix(before)}"
        return location


def relocation(database: sqlite3.Connection, path: Path) -> Relocation | None:
    """How the home of an open database at `path` was moved or copied; None where it was not, or where it is no home's.

    The database must have MLflow's tables.
    """
    now = path.absolute().parent
    if path.name != DATABASE or not (now / "store").is_dir():
        return None
    for (place,) in database.execute("SELECT artifact_location FROM experiments ORDER BY experiment_id"):
        parts = urlsplit(place or "")
        location = url2pathname(parts.path) if parts.scheme == "file" else str(place)
        for ending in _BEGINNINGS:
            if location.startswith("/") and location.endswith(ending):
                former = Path(location.removesuffix(ending))
                return None if _is_same(former, now) else Relocation(former, now)
    return None


def follow_home(path: Path) -> None:
    """Write the places of today into the database of a home that was moved or copied: see `relocation`.

    The database's tables must be of the known revision. Nothing is changed in one that can only be read.
    """
    if not os.access(path, os.W_OK) or not os.access(path.parent, os.W_OK):
        return
    with closing(sqlite3.connect(path, SECONDS_TO_WAIT, isolation_level=None)) as database:
        if relocation(database, path) is None:
            return
        database.execute("BEGIN IMMEDIATE")  # another process may have done it meanwhile
        move = relocation(database, path)
        if move is not None:
            _rewrite(database, move)
        database.execute("COMMIT")


def _rewrite(database: sqlite3.Connection, move: Relocation) -> None:
    for before, now in move.prefixes:
        for table, column in _PLACES:
            database.execute(
                f"UPDATE {table} SET {column} = ? || substr({column}, ?) WHERE substr({column}, 1, ?) = ?",
                (now, len(before) + 1, len(before), before),
            )
    database.execute("UPDATE tags SET value = ? WHERE key = ? AND value = ?", (str(move.now), HOME, str(move.former)))
    before, now = (f'"{json.dumps(f"{folder}/")[1:-1]}' for folder in (move.former, move.now))
    database.execute("UPDATE datasets SET dataset_source = replace(dataset_source, ?, ?)", (before, now))


def _is_same(one: Path, other: Path) -> bool:
    try:
        return one == other or os.path.samefile(one, other)
    except OSError:
        return False
