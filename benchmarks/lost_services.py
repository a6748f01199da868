"""Workers, the head of a Ray cluster, the database and the store's server are killed while an ablation needs them.

After each kill the ablation must go on, or stop in one sentence from which the same command goes on; at its end it must
have the digests of one that nothing has happened to. The servers are real ones on the loopback address: Ray where it is
installed, PostgreSQL (Debian's) behind Prefect and MLflow with eight workers, and moto's S3 server.

    python -m benchmarks.lost_services                    23 kills
    python -m benchmarks.lost_services --only store ray

Prints a line per kill, and at the end a table in Markdown; the exit status is 1 where a promise was broken. How a
computation of its own dies at any moment is `benchmarks.kills`.
"""

from __future__ import annotations

import argparse
import os
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from benchmarks.disturbed_ablation import Home, Loss, Trial, endure, undisturbed
from benchmarks.services import (
    RayCluster,
    StoreServer,
    busy,
    kept_by_half,
    kill,
    with_variables,
    without_an_answer,
    workers_of,
)
from tests.mlflow_rows import METRICS, metrics_in
from tests.store.s3_server import BUCKET

EIGHT_RUNS = ("ablation.seeds=[1, 2, 3, 4]",)
FOUR_ITERATIONS = ("optimization.iterations=4",)
WORKER = "flows.workers.processes"
BEGUN = """
    SELECT name, count(*) FROM task_run
    WHERE tags LIKE '%"stage %' AND state_name <> 'Cached' AND start_time >= ? GROUP BY name
"""


def killed_workers(number: int) -> Callable[[int], object]:
    """Kill the first `number` workers that there are, once there are any."""

    def strike(process: int) -> None:
        ends = time.monotonic() + 120
        while not (workers := workers_of(process, WORKER)) and time.monotonic() < ends:
            time.sleep(0.05)
        if not kill(workers[:number]):
            raise RuntimeError("there must be a worker to kill; found none")

    return strike


@contextmanager
def worker_trials(folder: Path) -> Iterator[Trial]:
    """Three processes, of whose workers one or all are killed."""
    losses = [Loss("a worker", "update", count, killed_workers(1)) for count in (1, 5)]
    losses += [Loss("all workers", "update", 9, killed_workers(9))]
    kills = 1 + 1 + 2
    began = datetime.now(UTC)

    def broken_in(undisturbed: Path) -> str:
        recomputed, stages = count_recomputed(folder / "server" / "prefect" / "prefect.db", began)
        print(f"  {recomputed} of {stages} stages were computed more than once, for {kills} workers lost", flush=True)
        return "a lost worker costs more than the stage that it was at" if recomputed > kills else ""

    yield Trial("workers", (*EIGHT_RUNS,), losses, processes=3, broken_in=broken_in)


def count_recomputed(database: Path, since: datetime) -> tuple[int, int]:
    """How many computations of stages since then were in vain, ended or broken off, and how many stages there are.

    A stage is known by its task run's name, which holds variant, seed and iteration. One that was found is "Cached".
    """
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
        rows = connection.execute(BEGUN, (since.strftime("%Y-%m-%d %H:%M:%S.%f"),)).fetchall()
    return sum(count - 1 for _, count in rows), len(rows)


@contextmanager
def ray_trials(folder: Path) -> Iterator[Trial]:
    """A cluster of which workers, the head, or all on the head's machine are killed."""
    cluster = RayCluster(Path(tempfile.mkdtemp(prefix="ray-", dir="/tmp")))
    cluster.start()
    runs = partial(cluster.processes, "ray::run")
    stopping = partial(Loss, back=cluster.start_again, stops=True)
    losses = [
        Loss("a Ray worker", "update", 1, lambda _: kill(runs()[:1])),
        stopping("the Ray head's machine", "update", 2, lambda _: cluster.kill_machine()),
        Loss("all Ray workers", "update", 4, lambda _: kill(runs())),
        stopping("the Ray head's machine", "update", 5, lambda _: cluster.kill_machine()),
        Loss("a Ray worker", "update", 6, lambda _: kill(runs()[:1])),
        # Last, since the workers of a lost head go on for a while.
        stopping("the Ray head", "update", 7, lambda _: cluster.kill_head()),
    ]
    runner = f"compute.runner={{kind: ray, address: '127.0.0.1:{cluster.port}'}}"
    try:
        yield Trial("Ray", (*FOUR_ITERATIONS, runner), losses, variables=cluster.variables)
    finally:
        cluster.kill_machine()


@contextmanager
def database_trials(folder: Path) -> Iterator[Trial]:
    """Eight processes with PostgreSQL behind Prefect and MLflow, which is killed and started again after a while."""
    from tests.postgres_server import running
    from tests.prefect_server import prefect_on

    with running() as postgres:
        (folder / "prefect").mkdir()

        def restart(seconds: float) -> None:
            postgres.stop()
            time.sleep(seconds)
            postgres.start()

        places = (
            ("warm_start", 1, 1.0),
            ("update", 2, 1.0),
            ("update", 7, 3.0),
            ("update", 12, 1.0),
            ("evaluate", 20, 5.0),
        )
        losses = [
            Loss(f"the database, for {seconds:.0f} s", stage, count, lambda _, seconds=seconds: restart(seconds))
            for stage, count, seconds in places
        ]
        tracking = f"tracking.uri=postgresql+psycopg://{postgres.make('mlflow')}"
        with prefect_on(postgres.make("prefect"), folder / "prefect") as prefect:

            def broken_in(undisturbed: Path) -> str:
                metrics = sorted(map(tuple, postgres.rows("mlflow", METRICS)))
                expected = metrics_in(undisturbed / "home" / "mlflow.db")
                print(f"  {len(metrics)} rows of metrics in MLflow, {len(expected)} with SQLite", flush=True)
                if metrics != expected:
                    return "a metric is lost or doubled"
                open_runs = "SELECT name, state_type FROM flow_run WHERE state_type <> 'COMPLETED'"
                unfinished = postgres.rows("prefect", open_runs)
                return f"flow runs are not completed: {unfinished}" if unfinished else ""

            variables = {"PREFECT_API_URL": prefect}
            yield Trial("database", (*EIGHT_RUNS, tracking), losses, 8, variables, broken_in)


@contextmanager
def store_trials(folder: Path) -> Iterator[Trial]:
    """A store on S3, whose server is busy, away, silent, forgetful, or keeps things by half."""
    server = StoreServer()
    server.start()
    server.make_bucket()
    losses = [
        Loss("the store's server, for 5 s", "warm_start", 1, lambda _: server.away(5.0)),
        Loss("the store: 503 for 5 s", "rollout", 1, lambda _: server.troubled(busy, 5.0)),
        Loss("the store: objects kept by half for 5 s", "update", 1, lambda _: server.troubled(kept_by_half, 5.0)),
        Loss("the store's server, for 10 s", "update", 2, lambda _: server.away(10.0)),
        Loss("the store: no answer for 90 s", "update", 3, lambda _: server.troubled(without_an_answer, 20.0)),
        Loss("the store's server, until started again", "update", 4, lambda _: server.kill(), server.start, stops=True),
        Loss("the store: all objects lost", "update", 5, lambda _: server.make_bucket()),
        Loss("the store: 503 for 10 s", "update", 7, lambda _: server.troubled(busy, 10.0)),
        Loss("the store: objects kept by half for 5 s", "evaluate", 9, lambda _: server.troubled(kept_by_half, 5.0)),
    ]
    try:
        yield Trial("store", (*FOUR_ITERATIONS, f"storage.url=s3://{BUCKET}/lab"), losses, variables=server.variables)
    finally:
        server.kill()


TRIALS = {"workers": worker_trials, "ray": ray_trials, "database": database_trials, "store": store_trials}


def _undisturbed(folder: Path, settings: Sequence[str]) -> Path:
    return folder / f"undisturbed-{'-'.join(settings)}"


def main() -> int:
    """Kill, compare and tell."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=TRIALS, default=list(TRIALS))
    parser.add_argument("--folder", type=Path, help="where the homes lie; by default a temporary folder")
    options = parser.parse_args()
    trials, expected = [], {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        os.environ["TURNWISE_HOME"] = str(folder / "server")
        from flows.runtime.server import ensure_server  # one server for all but the database's

        with with_variables({"PREFECT_API_URL": ensure_server()}):
            for name in options.only:
                if name == "ray" and find_spec("ray") is None:
                    print("ray: not installed, left out")
                    continue
                settings = EIGHT_RUNS if name in ("workers", "database") else FOUR_ITERATIONS
                if settings not in expected:
                    expected[settings] = undisturbed(_undisturbed(folder, settings), settings)
                print(name, flush=True)
                with TRIALS[name](folder) as trial:
                    home = Home(folder / name, trial)
                    endure(home, trial.losses)
                    if failure := trial.broken_in(_undisturbed(folder, settings)):
                        trial.losses[-1].broken = failure
                    trial.equal = "yes" if home.digests() == expected[settings] else "NO"
                trials.append(trial)
                print(f"  digests equal: {trial.equal}", flush=True)
    return print_table(trials)


def print_table(trials: Sequence[Trial]) -> int:
    """Print the table; the exit status."""
    print("\n| | killed | at | what the ablation said | digests equal |\n|---|---|---|---|---|")
    losses = [(trial, loss) for trial in trials for loss in trial.losses]
    for number, (trial, loss) in enumerate(losses, start=1):
        message = f"BROKEN: {loss.broken}: {loss.message}" if loss.broken else loss.message
        at = f"{loss.stage} {loss.results}"
        print(f"| {number} | {loss.what} | {at} | {' '.join(message.split())} | {trial.equal} |")
    passed = all(trial.equal == "yes" for trial in trials) and not any(loss.broken for _, loss in losses)
    print(f"\n{len(losses)} kills: {'every promise held' if passed else 'a promise was broken'}")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
