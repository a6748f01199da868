"""What a warm start from scratch takes, in processor seconds of training, until it plays as well.

    python -m benchmarks.warm_start                       AdamW and Muon
    python -m benchmarks.warm_start --against ../earlier  also AdamW as the learner of another checkout takes its steps
    python -m benchmarks.warm_start --sides muon:0.01:450 adamw:0.01:1200

The default experiment of the first version (`benchmarks/first_default.yaml`): a search for one fact, half a million
parameters, batches of 16 demonstrations. All sides train the same initial policy on the same draws, in turns, each in
a process of its own (`benchmarks/warm_start_side.py`) with one thread; a sixth of the steps is a turn. After it the
policy plays 256 validation tasks greedily, with today's engine, which is not counted: it is the same for all. A
learning rate falls to its end within the steps of its side, so the last row alone is what its warm start gives.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.materials import materials
from tasks.prepare.imitation import sequences_to_imitate
from tasks.prepare.materials import task_set
from turnwise.agent.playing import PlayParameters
from turnwise.agent.sampling import PolicyWeights, independent, play_episodes
from turnwise.data.arrays import SequenceBatch
from turnwise.data.metrics import episode_value
from turnwise.data.task_sets import tasks_of
from turnwise.experiment import Experiment, load
from turnwise.policy.learner.schedule import warmed_up_and_falling
from turnwise.store import Reference, default_store
from turnwise.training_runs.state import play_parameters, task_set_parameters

ROOT = Path(__file__).resolve().parents[1]
SIDE = Path(__file__).with_name("warm_start_side.py")
CHECKS = 6
SIDES = ("adamw:0.01:1200", "muon:0.01:600")
SETTINGS = {"compute.engine": "embedded", "data.demonstrations": 9400, "data.validation_tasks": 256}


@dataclass
class Side:
    """An optimizer with its learning rate and steps, and the process that takes them."""

    name: str
    process: subprocess.Popen[str]
    folder: Path
    seconds: float = 0.0
    successes: list[float] = field(default_factory=list)

    def turn(self) -> dict[str, Any]:
        """Train to the next check; the step, the seconds so far and the loss."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write("{}\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"the side {self.name} must train to its end; it ended with {self.process.wait()}")
        check: dict[str, Any] = json.loads(line)
        self.seconds = check["seconds"]
        return check


@dataclass(frozen=True)
class Prepared:
    """What all sides begin with."""

    experiment: Experiment
    play: PlayParameters
    tokenizer: Reference
    validation: Reference
    policy: Path
    sequences: Path

    def side(self, name: str, checkout: Path, recipe: str, folder: Path, seed: int) -> Side:
        """Start the process of a recipe, OPTIMIZER:LEARNING_RATE:STEPS, with the learner of a checkout."""
        optimizer, rate, steps = recipe.split(":")
        section = self.experiment.warm_start
        request = {
            "policy": str(self.policy),
            "sequences": str(self.sequences),
            "folder": str(folder),
            "seed": seed,
            "every": -(-int(steps) // CHECKS),
            "rates": [
                warmed_up_and_falling(step, int(steps), float(rate), section) for step in range(1, int(steps) + 1)
            ],
            "batch": section.batch,
            "micro_batch_tokens": section.micro_batch_tokens,
            "weight_decay": section.weight_decay,
            "options": {} if optimizer == "adamw" else {"optimizer": optimizer},
        }
        folder.mkdir()
        process = subprocess.Popen(
            [sys.executable, str(SIDE)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=checkout,
            env={**os.environ, "PYTHONPATH": str(checkout)},
        )
        assert process.stdin is not None
        process.stdin.write(json.dumps(request) + "\n")
        process.stdin.flush()
        return Side(name, process, folder)

    def greedy_success(self, side: Side) -> float:
        """The mean of exact match over greedy episodes of a side's policy on the validation tasks."""
        rollout = play_episodes(
            self.play,
            self.experiment.compute,
            independent(tasks_of(self.validation, "validation"), 1, 0),
            policy=PolicyWeights(side.folder, f"{side.folder}@{len(side.successes)}"),
            tokenizer=default_store().folder(self.tokenizer),
            temperature=0.0,
            seed=0,
            what="greedy success",
        )
        metric = self.experiment.made_world.primary_metric
        values = [episode_value(trajectory, metric) for trajectory in rollout.trajectories]
        return sum(values) / len(values)


def prepared(folder: Path) -> Prepared:
    """Tasks, demonstrations as token sequences, and an initial policy, in the home that the environment names."""
    experiment = load(ROOT / "params.yaml", [ROOT / "benchmarks" / "first_default.yaml"], SETTINGS)
    play, inputs = play_parameters(experiment), materials(experiment)
    validation = task_set.fn(task_set_parameters(experiment, "validation"))
    sequences = SequenceBatch.of(sequences_to_imitate(play, inputs.tokenizer, inputs.demonstrations))
    file = folder / "sequences.npz"
    np.savez(file, tokens=sequences.tokens, turns=sequences.turn_of_token, offsets=sequences.offsets)
    return Prepared(experiment, play, inputs.tokenizer, validation, default_store().folder(inputs.policy), file)


def main(arguments: Sequence[str] = ()) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.warm_start", description=__doc__.split("\n")[0])
    parser.add_argument("--against", type=Path, help="another checkout, whose AdamW is a side, too")
    parser.add_argument("--sides", nargs="+", default=SIDES, metavar="OPTIMIZER:RATE:STEPS")
    parser.add_argument("--seed", type=int, default=0, help="of the draws of demonstrations")
    options = parser.parse_args(list(arguments))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["TURNWISE_HOME"] = str(folder / "home")
        ready = prepared(folder)
        recipes = [(recipe, ROOT, recipe) for recipe in options.sides]
        if options.against:
            recipes.insert(0, (f"{SIDES[0]}, earlier", options.against.resolve(), SIDES[0]))
        sides = [
            ready.side(name, checkout, recipe, folder / str(number), options.seed)
            for number, (name, checkout, recipe) in enumerate(recipes)
        ]
        sys.stdout.write(f"{'side':>25} {'step':>5} {'seconds':>8} {'loss':>6} {'greedy success':>15}\n")
        for _ in range(CHECKS):
            for side in sides:
                check = side.turn()
                side.successes.append(ready.greedy_success(side))
                sys.stdout.write(
                    f"{side.name:>25} {check['step']:>5} {side.seconds:>8.1f} {check['loss']:>6.2f} "
                    f"{side.successes[-1]:>15.3f}\n"
                )
                sys.stdout.flush()
        first = sides[0]
        for side in sides[1:]:
            sys.stdout.write(
                f"{side.name}: {side.seconds / first.seconds:.2f} of the seconds of {first.name}, greedy success "
                f"{side.successes[-1]:.3f} for {first.successes[-1]:.3f}\n"
            )
        for side in sides:
            side.process.kill()


if __name__ == "__main__":
    main(sys.argv[1:])
