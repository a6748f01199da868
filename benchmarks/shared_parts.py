"""What a run costs the parts that machines share, by counting: writes `docs/shared-parts.json`.

    python -m benchmarks.shared_parts

A run of the tests' tiny experiment is made with 2 iterations and with 6, each in a fresh home and with its store in a
bucket: a real S3 server, moto's, on the loopback address. Counted are the server's requests and the bytes that they
bring, and the rows of Prefect's and of MLflow's database. What an iteration costs is a quarter of the difference. Every
iteration of this experiment evaluates its policy. Nothing is timed, so other work on the machine does not matter.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from tests.store.s3_server import BUCKET, S3Server, running

ROOT = Path(__file__).resolve().parents[1]
TINY = ROOT / "tests" / "end_to_end" / "tiny.yaml"
FOUND = ROOT / "docs" / "shared-parts.json"
FEW, MANY = 2, 6
STATES = ("task_run_state", "flow_run_state")
"""Tables of Prefect: a row for each change of state, which reaches its server as one event."""


def count_traffic(server: S3Server, iterations: int, folder: Path) -> Counter[str]:
    """What a run with so many iterations leaves in the shared parts."""
    counts: Counter[str] = Counter()

    def count(request: Mapping[str, Any]) -> None:
        kind = "policy" if "/policy/" in request["PATH_INFO"] else "other"
        method = "PUT" if request["REQUEST_METHOD"] in ("PUT", "POST") else "GET"
        counts[f"{method} requests"] += 1
        if method == "PUT":
            counts[f"bytes, {kind}"] += int(request.get("CONTENT_LENGTH") or 0)

    server.trouble = count  # type: ignore[assignment]  # it answers nothing, so that the server does
    shutil.copy(ROOT / "params.yaml", folder)
    settings = {
        "optimization.iterations": iterations,
        "ablation.variants": "[grpo-or]",
        "storage.url": f"s3://{BUCKET}/{iterations}",
    }
    command = [sys.executable, "-m", "flows.commands.cli", "ablation", str(TINY)]
    for key, value in settings.items():
        command += ["-s", f"{key}={value}"]
    environment = {
        **os.environ,
        "TURNWISE_HOME": str(folder / "home"),
        "DVC_ROOT": str(folder),  # results are written there, and not into the checkout
        "AWS_ACCESS_KEY_ID": "AKIDOFNOBODY",
        "AWS_SECRET_ACCESS_KEY": "nothing",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": server.address,
        "AWS_EC2_METADATA_DISABLED": "true",
        "NO_PROXY": "127.0.0.1",
    }
    subprocess.run(command, check=True, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL)
    rows = _rows(folder / "home" / "prefect" / "prefect.db")
    counts["Prefect events"] = sum(rows[name] for name in STATES)
    counts["Prefect rows"] = sum(rows.values())
    counts["MLflow rows"] = sum(_rows(folder / "home" / "mlflow.db").values())
    return counts


def _rows(database: Path) -> Counter[str]:
    """The rows of each table."""
    with closing(sqlite3.connect(database)) as connection:
        names = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        return Counter({name: connection.execute(f'SELECT count(*) FROM "{name}"').fetchone()[0] for name in names})


def main() -> None:
    """Count both runs, and write what an iteration costs."""
    with running() as server, tempfile.TemporaryDirectory() as name:
        import httpx

        httpx.put(f"{server.address}/{BUCKET}", timeout=60).raise_for_status()
        runs = {}
        for iterations in (FEW, MANY):
            (Path(name) / str(iterations)).mkdir()
            runs[iterations] = count_traffic(server, iterations, Path(name) / str(iterations))
    costs = {each: (runs[MANY][each] - runs[FEW][each]) / (MANY - FEW) for each in sorted(runs[MANY])}
    FOUND.write_text(json.dumps(costs, indent=1) + "\n", encoding="utf-8")
    for each, number in costs.items():
        print(f"{each:20}{number:12,.1f} an iteration")


if __name__ == "__main__":
    main()
