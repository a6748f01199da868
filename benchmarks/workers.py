"""What a second worker gains: runs per hour of one and of two, by processes of this machine or by Ray.

An ablation of short runs is made by one worker, then by two, each in a home that holds the preparation alone. Prefect's
server runs before the clock starts; both sides start their workers within it. A worker imports its libraries first, as
it would in an ablation of any length, so that the ratio of short runs is below that of long ones. With
`--beyond-start` each side makes twice as many runs, too, in a home of their own, and the difference counts, in which
there is no start.

    python -m benchmarks.workers                  Ray, on this machine
    python -m benchmarks.workers --kind processes
    python -m benchmarks.workers --runs 8 --iterations 50
    python -m benchmarks.workers --beyond-start     what a long ablation comes to

Prints seconds, runs per hour, and the ratio. The digests of both sides must be equal, else the exit status is 1. Wall
seconds mean something only where two cores are free: the load average is printed.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

ROOT = Path(__file__).resolve().parents[1]
TINY = ROOT / "tests" / "end_to_end" / "tiny.yaml"


def settings(kind: str, workers: int, runs: int, iterations: int) -> dict[str, Any]:
    """What is laid over the tests' tiny experiment."""
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
    }


def measured(kind: str, workers: int, runs: int, iterations: int, folder: Path) -> tuple[float, str]:
    """The wall seconds that so many workers take for the runs, and the digest of the results."""
    import turnwise as tw

    home = folder / f"{kind}-{workers}-{runs}"
    shutil.copytree(folder / "prepared", home, ignore=shutil.ignore_patterns("prefect"))
    os.environ["TURNWISE_HOME"] = str(home)
    experiment = tw.load(TINY, parameters=ROOT / "params.yaml", settings=settings(kind, workers, runs, iterations))
    began = time.perf_counter()
    digest = tw.ablation(experiment, quiet=True).digest
    return time.perf_counter() - began, digest


def main() -> int:
    """Measure one worker and two, and print the ratio."""
    import turnwise as tw

    parser = argparse.ArgumentParser(description="Measure what a second worker gains.")
    parser.add_argument("--kind", choices=("ray", "processes"), default="ray")
    parser.add_argument("--runs", type=int, default=4)
    parser.add_argument("--iterations", type=int, default=20)
    parser.add_argument("--beyond-start", action="store_true")
    chosen = parser.parse_args()
    print(f"{chosen.runs} runs of {chosen.iterations} iterations, {chosen.kind}; load {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shutil.copy(ROOT / "params.yaml", folder)
        os.environ["DVC_ROOT"] = str(folder)  # results are written there, and not into the checkout
        os.environ["TURNWISE_HOME"] = str(folder / "prepared")
        tw.prepare(tw.load(TINY, parameters=ROOT / "params.yaml"), quiet=True)
        made = {}
        for workers in (1, 2):
            seconds, digest = measured(chosen.kind, workers, chosen.runs, chosen.iterations, folder)
            if chosen.beyond_start:
                more, digest = measured(chosen.kind, workers, 2 * chosen.runs, chosen.iterations, folder)
                print(f"{workers} workers: {seconds:6.1f} s, and {more:6.1f} s for twice as many")
                seconds = more - seconds
            made[workers] = seconds, digest
            print(f"{workers} workers: {seconds:6.1f} s, {3600 * chosen.runs / seconds:6.1f} runs an hour, {digest}")
    (one, digest), (two, again) = made[1], made[2]
    print(f"two workers make {one / two:.2f} times the runs of one; load {os.getloadavg()[0]:.1f}")
    return 0 if digest == again else 1


if __name__ == "__main__":
    sys.exit(main())
