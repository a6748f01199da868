"""What a second worker gains: runs per hour of one and of two, by processes of this machine or by Ray.

An ablation of equal runs is made by one worker and by two, in turns: one, two, two, one. Each is made in a home that
holds the preparation alone, so that every run is computed. A worker imports its libraries before its first run, and may
wait for the others at the end, which in an ablation of hours is nothing: runs per hour are counted while all workers
are at work, after the runs that were first, by the times of the runs' flow runs in Prefect's database. A run that is
partly within that time counts by that part. What the whole command took stands beside them.

    python -m benchmarks.workers                  Ray, on this machine
    python -m benchmarks.workers --kind processes
    python -m benchmarks.workers --runs 8 --iterations 30 --rounds 2

The digests of all sides must be equal, else the exit status is 1. Wall seconds mean something only where two cores are
free: the load average is printed.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sqlite3
import statistics
import sys
import tempfile
import time
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

ROOT = Path(__file__).resolve().parents[1]
TINY = ROOT / "tests" / "end_to_end" / "tiny.yaml"
RUNS = (
    "SELECT start_time, end_time FROM flow_run WHERE name LIKE '% seed %' AND state_type = 'COMPLETED' "
    "ORDER BY end_time DESC LIMIT ?"
)


@dataclass(frozen=True)
class Side:
    """An ablation that was made: what the whole command took, and the rate while all workers were at work."""

    seconds: float
    runs_per_hour: float
    digest: str


def settings(kind: str, workers: int, runs: int, iterations: int) -> dict[str, Any]:
    """What is laid over the tests' tiny experiment: its iterations are longer, for they are tenths of a second else.

    Two workers share two cores with what the ablation itself does for each iteration (display, MLflow, the servers of
    Prefect and Ray), which would be a large part of iterations that short.
    """
    if kind == "ray":
        # Each run asks for all cores of its share: that is how many are made at once.
        runner: dict[str, Any] = {"kind": "ray", "address": "local", "cores": float((os.cpu_count() or 2) // workers)}
    else:
        runner = {"kind": "processes", "workers": workers}
    return {
        "compute.runner": runner,
        "ablation.seeds": list(range(1, runs + 1)),
        "ablation.variants": ["grpo-or"],
        "optimization.iterations": iterations,
        "rollout.prompts": 32,
        "rollout.group_size": 16,
    }


def measure(kind: str, workers: int, runs: int, iterations: int, prepared: Path, home: Path) -> Side:
    """An ablation of so many runs by so many workers."""
    import turnwise as tw

    shutil.copytree(prepared, home, ignore=shutil.ignore_patterns("prefect"))
    os.environ["TURNWISE_HOME"] = str(home)
    experiment = tw.load(TINY, parameters=ROOT / "params.yaml", settings=settings(kind, workers, runs, iterations))
    began = time.perf_counter()
    digest = tw.ablation(experiment, quiet=True).digest
    seconds = time.perf_counter() - began
    times = last_runs(prepared / "prefect" / "prefect.db", runs)
    return Side(seconds, 3600 * runs_per_second(times, workers), digest)


def last_runs(database: Path, runs: int) -> list[tuple[float, float]]:
    """When each of the last runs began and ended, in seconds, by the database of the server that all sides share."""
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
        times = connection.execute(RUNS, (runs,)).fetchall()
    return [(_seconds(start), _seconds(end)) for start, end in times]


def runs_per_second(times: list[tuple[float, float]], workers: int) -> float:
    """What so many workers make together, by the begin and end of each run.

    Counted from the moment at which as many runs as workers have ended that were the first to begin, to that at which
    the first worker finds nothing more to do. There must be more runs than workers, twice over.
    """
    if len(times) <= 2 * workers:
        raise ValueError(f"there must be more than {2 * workers} runs for {workers} workers; found {len(times)}")
    began = max(end for _, end in sorted(times)[:workers])
    until = sorted(end for _, end in times)[-workers]
    done = sum(max(0.0, min(end, until) - max(start, began)) / (end - start) for start, end in times)
    return done / (until - began)


def _seconds(moment: str) -> float:
    return datetime.fromisoformat(moment).timestamp()


def main() -> int:
    """Measure one worker and two in turns, and print the ratio."""
    import turnwise as tw

    parser = argparse.ArgumentParser(description="Measure what a second worker gains.")
    parser.add_argument("--kind", choices=("ray", "processes"), default="ray")
    parser.add_argument("--runs", type=int, default=6)
    parser.add_argument("--iterations", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=1, help="how often one, two, two, one is measured")
    options = parser.parse_args()
    print(f"{options.runs} runs of {options.iterations} iterations, {options.kind}; load {os.getloadavg()[0]:.1f}")
    sides: dict[int, list[Side]] = {1: [], 2: []}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shutil.copy(ROOT / "params.yaml", folder)
        os.environ["DVC_ROOT"] = str(folder)  # results are written there, and not into the checkout
        os.environ["TURNWISE_HOME"] = str(folder / "prepared")
        tw.prepare(tw.load(TINY, parameters=ROOT / "params.yaml"), quiet=True)
        for turn, workers in enumerate([1, 2, 2, 1] * options.rounds):
            home = folder / str(turn)
            side = measure(options.kind, workers, options.runs, options.iterations, folder / "prepared", home)
            sides[workers].append(side)
            print(f"{workers} workers: {side.seconds:6.1f} s, {side.runs_per_hour:6.1f} runs an hour, {side.digest}")
    rates = {workers: statistics.mean(side.runs_per_hour for side in repeats) for workers, repeats in sides.items()}
    whole = {workers: statistics.mean(side.seconds for side in repeats) for workers, repeats in sides.items()}
    print(f"two workers make {rates[2] / rates[1]:.2f} times the runs of one; load {os.getloadavg()[0]:.1f}")
    print(f"the whole command, with the workers' start: {whole[1] / whole[2]:.2f} times")
    return 0 if len({side.digest for repeats in sides.values() for side in repeats}) == 1 else 1


if __name__ == "__main__":
    sys.exit(main())
