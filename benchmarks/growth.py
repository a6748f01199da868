"""How the cost of a rollout grows with its groups and with its turns, through the real task, writing included.

    python -m benchmarks.growth                            8, 64 and 512 groups of 8 at 4 turns; 4 and 20 turns at 8
    python -m benchmarks.growth --groups 8 64 --engine vllm

Prints processor seconds per trajectory, the least of some rounds, and the memory that the process held at its peak,
which the largest rollout so far decides. The policy is untrained, so that every reply is cut off at 12 tokens and every
episode reaches the limit on turns: frozen lake, one thread, 2 layers of width 128.

Of the embedded engine's seconds, those of its attention calls stand beside. A token attends to all tokens before it,
so these grow with the square of the turns, whatever the code around them; the rest should grow with the turns.
"""

from __future__ import annotations

import argparse
import os
import resource
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import torch

from benchmarks.materials import materials
from tasks.rollout.rollout import RolloutParameters, rollout
from turnwise.data.trajectory_files import read_arrays
from turnwise.experiment import Experiment, load
from turnwise.policy.engines.fused import FusedForward
from turnwise.project import project_root
from turnwise.store import Reference, default_store
from turnwise.training_runs.state import play_parameters

GROUP_SIZE, REPLY_TOKENS, MOST_TURNS = 8, 12, 20
TRAJECTORIES_A_ROW = 1024
"""Played for a row, over its rounds, at least."""


@dataclass(frozen=True)
class Cost:
    """Processor seconds of a rollout, or of one of its trajectories."""

    whole: float
    attention: float
    """Of it, inside the embedded engine's attention calls; 0 with vLLM."""

    @property
    def rest(self) -> float:
        """All but attention."""
        return self.whole - self.attention

    def over(self, trajectories: int) -> Cost:
        """The cost of one of this many trajectories."""
        return Cost(self.whole / trajectories, self.attention / trajectories)


@dataclass(frozen=True)
class Prepared:
    """What a rollout reads."""

    experiment: Experiment
    tasks: Reference
    tokenizer: Reference
    policy: Reference

    def play(self, groups: int, turns: int, iteration: int) -> tuple[Cost, Reference]:
        """Play a rollout: what it costs, and its artifact."""
        parameters = RolloutParameters(
            **dict(play_parameters(self.experiment)),
            compute=self.experiment.compute,
            scheme="independent",
            prompts=groups,
            group_size=GROUP_SIZE,
            temperature=1.0,
            horizon=turns,
            seed=0,
            iteration=iteration,
            round=0,
        )
        attend, attention = FusedForward._attention, 0.0

        def timed(*arguments: Any) -> torch.Tensor:
            nonlocal attention
            began = time.process_time()
            output = attend(*arguments)
            attention += time.process_time() - began
            return output

        began = time.process_time()
        with patch.object(FusedForward, "_attention", timed):
            reference = rollout.fn(parameters, policy=self.policy, tokenizer=self.tokenizer, task_set=self.tasks)
        return Cost(time.process_time() - began, attention), reference


def prepared(engine: str, groups: int) -> Prepared:
    """Task set, tokenizer and an untrained policy, in the home that the environment names."""
    experiment = load(
        project_root() / "params.yaml",
        [project_root() / "experiments" / "frozen_lake.yaml"],
        {
            "compute.engine": engine,
            "world.parameters.turns": MOST_TURNS,
            "world.parameters.actions": MOST_TURNS,
            "agent.context_tokens": 1024,
            "agent.maximum_reply_tokens": REPLY_TOKENS,
            "data.train_tasks": groups,
            "data.demonstrations": 64,
            "data.demonstration_noise": 0.0,
            "policy.vocabulary": 512,
        },
    )
    inputs = materials(experiment)
    return Prepared(experiment, inputs.tasks, inputs.tokenizer, inputs.policy)


def peak_megabytes() -> float:
    """The most memory that this process has held."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def row(ready: Prepared, groups: int, turns: int, iteration: int) -> tuple[Cost, int]:
    """Print a row; returns the cost of a trajectory and the next iteration's number."""
    rounds = max(2, TRAJECTORIES_A_ROW // (groups * GROUP_SIZE * max(1, turns // 4)))
    if groups * GROUP_SIZE >= TRAJECTORIES_A_ROW:
        rounds = 1
    plays = [ready.play(groups, turns, iteration + number) for number in range(rounds)]
    arrays = read_arrays(default_store().folder(plays[-1][1]))
    cost = min((cost for cost, _ in plays), key=lambda cost: cost.whole).over(groups * GROUP_SIZE)
    sys.stdout.write(
        f"{groups:>6} {turns:>5} {len(arrays):>12} {len(arrays.trained) / len(arrays):>15.1f} "
        f"{1000 * cost.whole:>13.2f} {1000 * cost.attention:>12.2f} {peak_megabytes():>14.0f}\n"
    )
    sys.stdout.flush()
    return cost, iteration + rounds


def main(arguments: Sequence[str] = ()) -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.growth", description=__doc__.split("\n")[0])
    parser.add_argument("--groups", type=int, nargs="+", default=[8, 64, 512])
    parser.add_argument("--turns", type=int, nargs="+", default=[4, 20])
    parser.add_argument("--engine", choices=("embedded", "vllm"), default="embedded")
    options = parser.parse_args(list(arguments))
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TURNWISE_HOME"] = str(Path(folder))
        ready = prepared(options.engine, max(options.groups))
        sys.stdout.write("groups turns trajectories turns in a mean ms/trajectory of attention peak megabytes\n")
        _, iteration = ready.play(options.groups[0], options.turns[0], 0), 1
        by_turns, by_groups = [], []
        for turns in options.turns:
            cost, iteration = row(ready, options.groups[0], turns, iteration)
            by_turns.append(cost)
        for groups in options.groups[1:]:
            cost, iteration = row(ready, groups, options.turns[0], iteration)
            by_groups.append(cost)
    least = by_turns[0]
    ratios = [
        f"{turns} turns cost {cost.whole / least.whole:.2f} times {options.turns[0]}, "
        f"{cost.rest / least.rest:.2f} times without attention"
        for turns, cost in zip(options.turns[1:], by_turns[1:], strict=True)
    ]
    ratios += [
        f"{groups} groups cost {cost.whole / least.whole:.2f} times {options.groups[0]} a trajectory"
        for groups, cost in zip(options.groups[1:], by_groups, strict=True)
    ]
    sys.stdout.write("\n".join(ratios) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
    sys.stdout.flush()
    os._exit(0)  # tearing vLLM down takes seconds
