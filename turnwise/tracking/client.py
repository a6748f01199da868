"""MLflow's client of one tracking store. What is read often is read without MLflow, whose import takes seconds.

The runs in a SQLite file are read from its tables, where these are the known ones (`turnwise.tracking.database`). Any
other store is read by MLflow, and everything is written by MLflow.
"""

from __future__ import annotations

import logging
import math
import sqlite3
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, partial, wraps
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

from turnwise.errors import TrackingUnreachable
from turnwise.store.exclusive import exclusive
from turnwise.store.sqlite_files import sqlite_file
from turnwise.tracking.database import known_tables, open_client, place_of
from turnwise.tracking.library import every_page, mlflow
from turnwise.tracking.locations import relocation

logger = logging.getLogger(__name__)

SECONDS_FOR_A_RESTART = 120.0
"""For how long a call waits for a database server that cannot be reached."""
UNAVAILABLE = "TEMPORARILY_UNAVAILABLE"
"""MLflow's code for a database that fails: of a server, or a file that is locked for longer than MLflow waits."""
_ACTIVE = (
    "lifecycle_stage = 'active' "
    "AND experiment_id IN (SELECT experiment_id FROM experiments WHERE lifecycle_stage = 'active')"
)


class PatientClient:
    """MLflow's client, each of whose calls is repeated while its database server cannot be reached.

    MLflow checks its connections before each use, so that those from before a restart do no harm. What a call has
    written that fails so is rolled back. After that, TrackingUnreachable is raised.
    """

    def __init__(self, connect: Callable[[], Any], tracking_uri: str) -> None:
        self._uri = tracking_uri
        self._client = self._waited_for(connect)

    def __getattr__(self, name: str) -> Any:
        """What MLflow's client has under this name."""
        method = getattr(self._client, name)
        if not callable(method):
            return method

        @wraps(method)
        def patient(*arguments: Any, **keywords: Any) -> Any:
            return self._waited_for(lambda: method(*arguments, **keywords))

        return patient

    def _waited_for(self, call: Callable[[], Any]) -> Any:
        ends, pause, waits = time.monotonic() + SECONDS_FOR_A_RESTART, 0.2, False
        while True:
            try:
                return call()
            except Exception as error:
                if getattr(error, "error_code", "") != UNAVAILABLE:
                    raise
                if time.monotonic() + pause > ends:
                    raise TrackingUnreachable(
                        f"the database at tracking.uri ({place_of(self._uri)}) must answer within "
                        f"{SECONDS_FOR_A_RESTART:.0f} s; it does not: when it does, give the same command again, which "
                        "goes on where this one stopped",
                        "TW-tracking-unreachable",
                    ) from error
            if not waits:
                waits = True
                logger.warning("the database at %s does not answer, and is waited for", place_of(self._uri))
            time.sleep(pause)
            pause = min(2 * pause, 10.0)


class TrackingClient:
    """MLflow's client of a store, opened at the first call that needs it; a missing SQLite file is created then."""

    def __init__(self, tracking_uri: str) -> None:
        self.tracking_uri = tracking_uri

    @cached_property
    def mlflow(self) -> Any:
        """The client itself, whose calls wait for a database server that is being restarted."""
        return PatientClient(lambda: open_client(self.tracking_uri), self.tracking_uri)

    def __getattr__(self, name: str) -> Any:
        """What is not read here is MLflow's."""
        return getattr(self.mlflow, name)

    def runs(self, tag: tuple[str, str] | None = None, experiment_id: str | None = None) -> list[Any]:
        """The runs that are not deleted, oldest first: of all experiments or of one, and all or those with this tag.

        They are MLflow's entities, or alike.
        """
        with known_tables(self.tracking_uri) as database:
            if database is not None:
                condition, values = _ACTIVE, [*(tag or ())]
                if tag is not None:
                    condition += " AND run_uuid IN (SELECT run_uuid FROM tags WHERE key = ? AND value = ?)"
                if experiment_id is not None:
                    condition += " AND experiment_id = ?"
                    values.append(experiment_id)
                entities = self._read_runs(database, condition, values)
            else:
                query = f"tags.`{tag[0]}` = '{tag[1]}'" if tag else ""
                ids = [experiment_id] if experiment_id else [e.experiment_id for e in self.mlflow.search_experiments()]
                entities = [run for each in ids for run in every_page(partial(self.mlflow.search_runs, [each], query))]
        return sorted(entities, key=lambda run: (run.info.start_time, run.info.run_id))

    def run(self, run_id: str) -> Any:
        """The run of this id. Raises MlflowException where there is none."""
        with known_tables(self.tracking_uri) as database:
            runs = [] if database is None else self._read_runs(database, "run_uuid = ?", [run_id])
        return runs[0] if runs else self.mlflow.get_run(run_id)

    def experiment_id(self, name: str) -> str | None:
        """The id of the experiment of this name; None unless it exists and is not deleted."""
        with known_tables(self.tracking_uri) as database:
            if database is not None:
                query = "SELECT experiment_id FROM experiments WHERE name = ? AND lifecycle_stage = 'active'"
                row = database.execute(query, (name,)).fetchone()
                return None if row is None else str(row[0])
        entity = self.mlflow.get_experiment_by_name(name)
        return None if entity is None or entity.lifecycle_stage == "deleted" else str(entity.experiment_id)

    def tag_experiment(self, experiment_id: str, key: str, value: str) -> None:
        """Set a tag of an experiment, unless it has this value.

        One process of this home at a time: MLflow fails where two insert the same tag at once.
        """
        with exclusive(f"experiment-tag/{experiment_id}"):
            with known_tables(self.tracking_uri) as database:
                query = "SELECT 1 FROM experiment_tags WHERE experiment_id = ? AND key = ? AND value = ?"
                if database is not None and database.execute(query, (experiment_id, key, value)).fetchone():
                    return
            self.mlflow.set_experiment_tag(experiment_id, key, value)

    def content(self, run: Any, name: str) -> bytes | None:
        """The content of one of the run's files; None where the run has no such file."""
        uri = run.info.artifact_uri
        parts = urlsplit(uri)
        if parts.scheme in ("", "file"):
            path = Path(url2pathname(parts.path)) / name
            return path.read_bytes() if path.is_file() else None
        if not any(file.path == name for file in self.mlflow.list_artifacts(run.info.run_id)):
            return None
        return Path(mlflow().artifacts.download_artifacts(f"{uri}/{name}")).read_bytes()

    def _read_runs(self, database: sqlite3.Connection, condition: str, values: Sequence[str]) -> list[Any]:
        """The runs that fulfil a condition on their table, with all that is recorded of each, as MLflow's `Run`."""
        path = sqlite_file(self.tracking_uri)
        move = None if path is None else relocation(database, path)
        selection = f"SELECT run_uuid FROM runs WHERE {condition}"
        tags, parameters, metrics = (
            _by_run(
                database.execute(f"SELECT run_uuid, key, {value} FROM {table} WHERE run_uuid IN ({selection})", values)
            )
            for table, value in (
                ("tags", "value"),
                ("params", "value"),
                ("latest_metrics", "CASE is_nan WHEN 1 THEN NULL ELSE value END"),
            )
        )
        columns = "run_uuid AS run_id, name AS run_name, experiment_id, status, start_time, artifact_uri"
        cursor = database.execute(f"SELECT {columns} FROM runs WHERE run_uuid IN ({selection})", values)
        names = [column[0] for column in cursor.description]
        runs = []
        for info in (SimpleNamespace(**dict(zip(names, row, strict=True))) for row in cursor):
            info.experiment_id = str(info.experiment_id)
            info.artifact_uri = info.artifact_uri if move is None else move.place(info.artifact_uri)
            last = {key: math.nan if value is None else value for key, value in metrics[info.run_id].items()}
            data = SimpleNamespace(tags=tags[info.run_id], params=parameters[info.run_id], metrics=last)
            runs.append(SimpleNamespace(info=info, data=data))
        return runs


def _by_run(rows: Iterable[tuple[str, str, Any]]) -> Mapping[str, dict[str, Any]]:
    values_by_run: defaultdict[str, dict[str, Any]] = defaultdict(dict)
    for run_id, key, value in rows:
        values_by_run[run_id][key] = value
    return values_by_run
