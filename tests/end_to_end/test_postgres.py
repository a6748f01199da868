"""PostgreSQL behind Prefect and MLflow: the results of SQLite, every metric once, also where it is restarted."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from comparison import Computed
from project_copy import ROOT, TINY

from tests.postgres_server import PostgresServer, running
from tests.prefect_server import prefect_on

pytestmark = pytest.mark.chain

METRICS = """
    SELECT runs.name, metrics.key, metrics.step, metrics.value
    FROM metrics JOIN runs ON runs.run_uuid = metrics.run_uuid
    WHERE metrics.key NOT LIKE '%seconds%' AND metrics.key NOT LIKE '%per_second%' AND metrics.key NOT LIKE '%memory%'
"""
ABLATION = """
import sys
from pathlib import Path
from comparison import compared
from turnwise.experiment import load
tracking, tiny, folder = sys.argv[1:]
experiment = load(Path("params.yaml"), [Path(tiny)], {"tracking.uri": tracking})
print("digest", compared(experiment, Path(folder) / "results").digest)
"""


def rows(postgres: PostgresServer, database: str, query: str) -> list[Any]:
    import psycopg

    with psycopg.connect(f"postgresql://postgres@127.0.0.1:{postgres.port}/{database}") as connection:
        return connection.execute(query).fetchall()


def test_an_ablation_is_that_of_sqlite_though_the_database_is_restarted_in_its_middle(
    tiny_ablation: Computed, tmp_path: Path
) -> None:
    with running() as postgres:
        tracking = f"postgresql+psycopg://{postgres.make('mlflow')}"
        (tmp_path / "prefect").mkdir()
        with prefect_on(postgres.make("prefect"), tmp_path / "prefect") as prefect, (tmp_path / "log").open("w") as log:
            ablation = subprocess.Popen(
                [sys.executable, "-c", ABLATION, tracking, str(TINY), str(tmp_path)],
                env={
                    **os.environ,
                    "PREFECT_API_URL": prefect,
                    "TURNWISE_HOME": str(tmp_path / "home"),
                    "PYTHONPATH": os.pathsep.join([str(ROOT), str(TINY.parent)]),
                },
                cwd=ROOT,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
            while not (tmp_path / "home" / "results" / "update").exists():
                assert ablation.poll() is None, (tmp_path / "log").read_text()[-3000:]
                time.sleep(0.1)
            postgres.stop()
            time.sleep(1.0)
            postgres.start()
            said, _ = ablation.communicate(timeout=500)
        assert said == f"digest {tiny_ablation.digest}\n", (tmp_path / "log").read_text()[-3000:]
        states = rows(postgres, "prefect", "SELECT state_type, count(*) FROM flow_run GROUP BY state_type")
        assert states == [("COMPLETED", 1)]
        found = rows(postgres, "mlflow", METRICS)
        places = rows(postgres, "mlflow", "SELECT artifact_location FROM experiments WHERE name = 'turnwise'")
        assert places == [((tmp_path / "home" / "mlflow").as_uri(),)], "and not in the folder where it was started"
    with closing(sqlite3.connect(tiny_ablation.home / "mlflow.db")) as database:
        expected = database.execute(METRICS).fetchall()
    assert sorted(map(tuple, found)) == sorted(expected) and len(expected) > 50
