"""An iteration of an experiment by part, in processor seconds: what is engine, worlds and learner, and what is not.

    python -m benchmarks.iteration                                     the default experiment, with either engine
    python -m benchmarks.iteration --engines embedded --iterations 6
    python -m benchmarks.iteration --against ../earlier                also the code of another checkout, in turns
    python -m benchmarks.iteration --overlay experiments/ragen.yaml -s rollout.prompts=4
    python -m benchmarks.iteration --engines embedded --against ../first --against-engine transformers
    python -m benchmarks.iteration --figure docs/iteration.png

Every side is a process of its own with a home of its own (`benchmarks/iteration_side.py`, whose observers take the
account). It runs the whole experiment as `turnwise experiment` does, after a short warm start, with Prefect's server,
MLflow and the display. With several sides, each runs an iteration while the others wait for their turn. Printed are
means over the iterations after the warm-up, since MLflow's records and the server's are written for several iterations
together. What an evaluation and a probe cost is not among them and printed below the table.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from turnwise.store.run_environment import platform

ROOT = Path(__file__).resolve().parents[1]
SIDE = Path(__file__).with_name("iteration_side.py")
WARM_UP = 2
SHORT = {
    "warm_start.maximum_steps": 200,
    "data.demonstrations": 2000,
    "data.test_tasks": 16,
}
"""What is shortened before the iterations and after them."""
OF_TRAINING = ("engine", "worlds", "episode loop", "learner")
"""The parts that a training loop without a pipeline has, too."""
GROUPS: dict[str, tuple[str, ...]] = {
    "engine": ("engine",),
    "worlds": ("worlds",),
    "episode loop": ("episode loop",),
    "learner": ("learner",),
    "Prefect": ("Prefect", "Prefect's threads", "Prefect's server"),
    "MLflow": ("MLflow",),
    "reading, writing, digests": ("reading", "writing and digests"),
    "the rest": ("credit", "health", "cache keys", "retention", "display", "rest"),
}
"""The parts as the figure shows them."""
EVERY_NOW_AND_THEN = {"evaluation": "evaluation.every", "probe": "monitors.probe_every"}


@dataclass
class Side:
    """One checkout with one engine, in a process of its own."""

    name: str
    root: Path
    request: dict[str, Any]
    accounts: list[dict[str, Any]] = field(default_factory=list)
    digest: str = ""

    def start(self) -> None:
        """Start the process; it goes on to the end of its first iteration."""
        python = self.root / ".venv" / "bin" / "python"
        self._process = subprocess.Popen(
            [str(python if python.exists() else sys.executable), "-P", "-W", "ignore", str(SIDE)],
            cwd=self.root,
            env={**os.environ, "PYTHONPATH": str(self.root), "OMP_WAIT_POLICY": "PASSIVE"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=sys.stderr if self.request.get("verbose") else subprocess.DEVNULL,
            text=True,
        )
        self._send(json.dumps({name: value for name, value in self.request.items() if name != "verbose"}))

    def finish_iteration(self) -> bool:
        """Wait for the account of the iteration that runs; False where the run has ended."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.name} ended with status {self._process.wait()}: --verbose shows what it said")
        answer = json.loads(line)
        if "digest" in answer:
            self.digest = answer["digest"]
            self._process.wait()
            return False
        self.accounts.append(answer)
        return True

    def begin_iteration(self) -> None:
        """Let it go on."""
        self._send("go")

    def _send(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def mean(self, part: str, kind: str = "processor") -> float:
        """The mean of a part over the iterations after the warm-up, in seconds."""
        return statistics.fmean(each[kind].get(part, 0.0) for each in self.accounts if each["number"] > WARM_UP)

    @property
    def whole(self) -> float:
        """The mean of an iteration without evaluation and probe, in processor seconds."""
        return sum(self.mean(part) for group in GROUPS.values() for part in group)


def in_turns(sides: Sequence[Side]) -> None:
    """Run all sides to their ends, an iteration of each in turns."""
    for side in sides:
        side.start()
        side.finish_iteration()
    running = list(sides)
    while running:
        for side in list(running):
            side.begin_iteration()
            if not side.finish_iteration():
                running.remove(side)


def print_table(sides: Sequence[Side], every: dict[str, int]) -> None:
    """Print the account: per side milliseconds of processor time, shares, and what the main thread waited."""
    parts = [part for group in GROUPS.values() for part in group]
    print(f"{'':22}" + "".join(f"{side.name:>32}" for side in sides))
    print(f"{'part':22}" + f"{'ms':>12}{'share':>9}{'waited':>11}" * len(sides))
    for part in parts:
        columns = "".join(
            f"{1000 * side.mean(part):12.1f}{side.mean(part) / side.whole:9.1%}{1000 * side.mean(part, 'waited'):11.1f}"
            for side in sides
        )
        print(f"{part:22}{columns}")
    print(f"{'an iteration':22}" + "".join(f"{1000 * side.whole:12.1f}{1:9.0%}{'':11}" for side in sides))
    besides = [1 - sum(side.mean(part) for part in OF_TRAINING) / side.whole for side in sides]
    print(
        f"{'all but the first 4':22}"
        + "".join(
            f"{1000 * side.whole * share:12.1f}{share:9.1%}{'':11}" for side, share in zip(sides, besides, strict=True)
        )
    )
    for part, iterations in every.items():
        for side in sides:
            seconds = [each["processor"][part] for each in side.accounts if part in each["processor"]]
            if seconds:
                print(f"{side.name}: {part} {statistics.fmean(seconds):.2f} s, every {iterations} iterations")
    print("digests: " + ", ".join(f"{side.name} {side.digest}" for side in sides))


def draw(sides: Sequence[Side], file: Path) -> None:
    """Draw the account as one bar per side."""
    import matplotlib

    from turnwise.reporting.figures.drawing import COLOURS, GREY, SETTINGS, axes_of

    with matplotlib.rc_context(SETTINGS):
        drawing, axes = axes_of(7.2, 1.1 + 0.42 * len(sides))
        left = [0.0] * len(sides)
        for colour, (group, parts) in zip((*COLOURS, GREY), GROUPS.items(), strict=True):
            widths = [sum(side.mean(part) for part in parts) for side in sides]
            axes.barh(range(len(sides)), widths, 0.62, left=left, color=colour, label=group)
            left = [begin + width for begin, width in zip(left, widths, strict=True)]
        axes.set_yticks(range(len(sides)), [side.name for side in sides])
        axes.invert_yaxis()
        axes.grid(axis="y", visible=False)
        axes.set_xlabel("processor seconds of an iteration")
        drawing.legend(loc="outside lower center", ncols=4)
        drawing.savefig(file, dpi=200, metadata={"Software": None}, facecolor="white")


def main(arguments: Sequence[str] = ()) -> None:
    """Run the sides, print the table and draw the figure."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.iteration", description=__doc__.split("\n")[0])
    parser.add_argument("--engines", nargs="+", choices=("embedded", "vllm"), default=["embedded", "vllm"])
    parser.add_argument("--iterations", type=int, default=12, help="after the warm-up of 2")
    parser.add_argument("--against", type=Path, help="another checkout, run with its own .venv if it has one")
    parser.add_argument("--against-engine", help="the engine of the other checkout, where it has others")
    parser.add_argument("--overlay", action="append", default=[], help="on the params.yaml of each checkout")
    parser.add_argument("-s", "--setting", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--variant", default="mt-grpo", help="empty: the parameters as they are")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--homes", type=Path, help="keep the homes there and find their warm starts again")
    parser.add_argument("--figure", type=Path, help="draw the account into this PNG")
    parser.add_argument("--verbose", action="store_true", help="show what the runs say")
    options = parser.parse_args(list(arguments))
    settings = {**SHORT, "optimization.iterations": WARM_UP + options.iterations}
    settings |= {key: yaml.safe_load(value) for key, _, value in (each.partition("=") for each in options.setting)}
    options.overlay = [str(Path(overlay).resolve()) for overlay in options.overlay]
    roots = {"": ROOT, **({f"{options.against.name}, ": options.against.resolve()} if options.against else {})}
    parameters = yaml.safe_load((ROOT / "params.yaml").read_text(encoding="utf-8"))
    every = {
        part: parameters[section][key]
        for part, (section, _, key) in ((part, each.partition(".")) for part, each in EVERY_NOW_AND_THEN.items())
    }
    print("processor: " + " ".join(platform()["processor"]["flags"]))
    sides: list[Side] = []
    with tempfile.TemporaryDirectory() as folder:
        for engine in options.engines:
            engine_sides = [
                Side(
                    f"{name}{engine}",
                    root,
                    {
                        "overlays": options.overlay,
                        "settings": {**settings, "compute.engine": (name and options.against_engine) or engine},
                        "variant": options.variant or None,
                        "seed": options.seed,
                        "home": str((options.homes or Path(folder)).resolve() / f"{root.name}-{engine}"),
                        "verbose": options.verbose,
                    },
                )
                for name, root in roots.items()
            ]
            in_turns(engine_sides)
            print_table(engine_sides, every)
            sides += engine_sides
    if options.figure:
        draw(sides, options.figure)


if __name__ == "__main__":
    main(sys.argv[1:])
