"""PostgreSQL behind Prefect and MLflow: the results of SQLite, every metric once, also where it is restarted."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from comparison import Computed
from project_copy import ROOT, TINY

from tests.mlflow_rows import METRICS, metrics_in
from tests.postgres_server import running
from tests.prefect_server import prefect_on

pytestmark = pytest.mark.chain

ABLATION = """
import sys
from pathlib import Path
from comparison import compared
from turnwise.experiment import load
tracking, tiny, folder = sys.argv[1:]
experiment = load(Path("params.yaml"), [Path(tiny)], {"tracking.uri": tracking})
print("digest", compared(experiment, Path(folder) / "results").digest)
"""


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
        states = postgres.rows("prefect", "SELECT state_type, count(*) FROM flow_run GROUP BY state_type")
        assert states == [("COMPLETED", 3)]  # the comparison and its two runs
        found = postgres.rows("mlflow", METRICS)
        places = postgres.rows("mlflow", "SELECT artifact_location FROM experiments WHERE name = 'turnwise'")
        assert places == [((tmp_path / "home" / "mlflow").as_uri(),)], "and not in the folder where it was started"
    expected = metrics_in(tiny_ablation.home / "mlflow.db")
    assert sorted(map(tuple, found)) == expected and len(expected) > 50
