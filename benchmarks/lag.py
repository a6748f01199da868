"""What sampling ahead gains (`rollout.lag: 1`): wall and processor seconds per iteration with and without it, in turns.

An experiment is trained with lag 0 and no correction, and with lag 1, its correction and a process that samples ahead,
seed after seed. Sampling and update take about equally long there: that is where a lag gains most. The policy is random
and replies are as long as they may be, so that every iteration does the same work; a small entropy bonus trains it
although nothing earns anything. Reported are medians over the iterations of all seeds but the first ones of each, in
which engines start. With lag 1 the processor seconds include those of the sampler, and the update has two further
costs: a forward pass over the batch for the importance weights, and one micro-batch under the policy that sampled.

    python -m benchmarks.lag                      the embedded engine
    python -m benchmarks.lag --engine vllm

Wall seconds mean something only where both cores are free: the load average is printed.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

if TYPE_CHECKING:
    from flows.runtime.sampler import Sampler
    from turnwise.experiment import Experiment
    from turnwise.training_runs.state import Iteration, Prepared, Run

ROOT = Path(__file__).resolve().parents[1]
TINY = ROOT / "tests" / "end_to_end" / "tiny.yaml"
FIRST_MEASURED = 4
"""The first iteration that is measured: before it, the engines of both processes have started."""
NO_CORRECTION: dict[str, Any] = {"rollout.lag": 0, "optimization.correction": None}
AHEAD: dict[str, Any] = {"rollout.lag": 1, "optimization.correction": {"kind": "truncate"}}


def settings(engine: str, iterations: int) -> dict[str, Any]:
    """What is laid over the tests' tiny experiment, so that sampling and update are substantial and alike in cost."""
    return {
        "compute.engine": engine,
        "world.parameters.turns": 4,
        "world.parameters.actions": 4,
        "agent.maximum_reply_tokens": 32,
        "agent.context_tokens": 320,
        "policy.hidden": 128,
        "policy.feed_forward": 512,
        "warm_start.enabled": False,
        "rollout.prompts": 8,
        "rollout.group_size": 8,
        "optimization.iterations": iterations,
        "optimization.entropy_coefficient": 1e-3,
        "optimization.mini_batches": 1,
        "monitors.probe_every": None,
        "evaluation.every": 10**6,
        "evaluation.samples": 1,
        "guards": dict.fromkeys(("no_signal", "zero_variance_groups", "truncated_replies")),
        "ablation.variants": ["base"],
        "variants": {"base": {}},
    }


class Marks:
    """The wall and processor seconds at which iterations ended, and what their sampling and update took."""

    def __init__(self) -> None:
        self.at: list[tuple[float, float]] = []
        self.parts: list[tuple[float, float]] = []

    def iteration(self, run: Run, iteration: Iteration) -> None:
        """Take note of the end of an iteration."""
        from turnwise.store import default_store

        self.at.append((time.perf_counter(), processor_seconds()))
        clocks = [default_store().clock(artifact) for artifact in (iteration.rollout, iteration.policy)]
        self.parts.append((clocks[0]["seconds"], clocks[1]["seconds"]))

    def per_iteration(self) -> list[tuple[float, float, float, float]]:
        """Wall seconds, processor seconds, and wall seconds of sampling and of the update, by measured iteration."""
        first = FIRST_MEASURED - 1
        return [
            (after[0] - before[0], after[1] - before[1], *parts)
            for before, after, parts in zip(
                self.at[first - 1 : -2], self.at[first:-1], self.parts[first:-1], strict=True
            )  # the last iteration is evaluated
        ]


def processor_seconds() -> float:
    """Processor seconds of this process and of those that it has started and that are still running."""
    ticks, child_seconds = os.sysconf("SC_CLK_TCK"), 0.0
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text(encoding="utf-8").rpartition(")")[2].split()
        except OSError:
            continue  # it has ended meanwhile
        if int(fields[1]) == os.getpid():
            child_seconds += (int(fields[11]) + int(fields[12])) / ticks
    return time.process_time() + child_seconds


def measure(
    experiment: Experiment, prepared: Prepared, seed: int, sampler: Sampler | None
) -> list[tuple[float, float, float, float]]:
    """The figures of the iterations of one run."""
    from flows.train import train

    marks = Marks()
    train(experiment, prepared, "base", seed, marks.iteration, sampler)
    return marks.per_iteration()


def compare(engine: str, iterations: int, seeds: int) -> Mapping[str, list[tuple[float, ...]]]:
    """The figures with both lags, seed after seed, in turns."""
    from flows.prepare import prepare_materials, prepare_policy
    from flows.runtime.sampler import sampling_ahead
    from turnwise.experiment import load

    without, ahead = (
        load(ROOT / "params.yaml", [TINY], {**settings(engine, iterations), **lag}) for lag in (NO_CORRECTION, AHEAD)
    )
    prepared = prepare_policy(without, prepare_materials(without))
    figures: dict[str, list[tuple[float, ...]]] = {"lag 0": [], "lag 1, one process": [], "lag 1": []}
    with sampling_ahead(True, lambda call: None, print) as sampler:
        for seed in range(1, seeds + 1):
            figures["lag 0"] += measure(without, prepared, seed, None)
            figures["lag 1"] += measure(ahead, prepared, seed, sampler)
            figures["lag 1, one process"] += measure(ahead, prepared, 1000 + seed, None)
    return figures


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--engine", choices=("embedded", "vllm"), default="embedded")
    parser.add_argument("--iterations", type=int, default=14)
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args(sys.argv[1:] if __name__ == "__main__" else [])
    with tempfile.TemporaryDirectory() as home:
        os.environ["TURNWISE_HOME"] = home
        from flows.runtime.server import ensure_server, stop_server

        ensure_server()  # before Prefect is imported
        try:
            from prefect import flow

            within_a_flow = flow(name="lag", validate_parameters=False, persist_result=False)(compare)
            figures = within_a_flow(options.engine, options.iterations, options.seeds)
        finally:
            stop_server()
    load = os.getloadavg()[0]
    print(f"rollout.lag, {options.engine} engine, one thread for each of engine and learner; load average {load:.1f}")
    print(f"{'':<20}{'iterations':>11}{'wall s':>9}{'processor s':>13}{'sampling s':>12}{'update s':>10}")
    medians = {name: [median(column) for column in zip(*rows, strict=True)] for name, rows in figures.items()}
    for name, (wall, processor, sampling, update) in medians.items():
        print(f"{name:<20}{len(figures[name]):>11}{wall:>9.2f}{processor:>13.2f}{sampling:>12.2f}{update:>10.2f}")
    print(
        f"Lag 1 over lag 0: {medians['lag 1'][0] / medians['lag 0'][0]:.2f} of the wall seconds, "
        f"{medians['lag 1'][1] / medians['lag 0'][1]:.2f} of the processor seconds"
    )


if __name__ == "__main__":
    main()
