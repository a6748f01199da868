"""What one card does with this learner and this engine, in a run of at most ten minutes.

    python -m benchmarks.gpu                    on a card of 80 GB or more, at Qwen3-0.6B's shape, with random weights
    python -m benchmarks.gpu --device cpu       the same parts at a small shape, to see that they work

Prints, as each is found:

* the learner's MFU, the share of the card's bfloat16 peak that an update uses, counted as in `benchmarks.learner`, in
  micro-batches of 16,384 tokens, as it is and with `compute.compiled`; the goal is 40 %. And what its time is spent on;
* vLLM's share of the card, beside what it takes when it has started;
* tokens sampled a second; how far engine and learner are apart on them; how long it takes to hand weights over;
* the peaks of memory while the engine samples and while the learner updates, beside the plan of `--dry-run`;
* what a real language model learns: `experiments/smollm2/search.yaml`, one rule and one seed, in bfloat16.

Each part is a process, which ends when its share of the time is over. The last line says what was not measured, and
the exit status is 1 then; without a card it is 2, at once. `benchmarks.gpu_parts` has what is measured.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MINUTES = 10.0
NO_CARD = (
    "a card of NVIDIA's must be there, with a driver for CUDA 13 and the packages of requirements/gpu.lock; the driver "
    "shows none: go where nvidia-smi shows one, or give --device cpu, which tries the same at a small shape"
)


@dataclass(frozen=True)
class Part:
    """What one process measures, and the share of the time that it has."""

    name: str
    share: float
    figures: tuple[str, ...]


PARTS = (
    Part("learner", 0.15, ("MFU", "trained", "time of update")),
    Part("compiled", 0.2, ("MFU, compiled",)),
    Part(
        "together",
        0.3,
        ("vLLM's start", "vLLM's share", "sampled", "mismatch", "peak, update", "handing over", "peak, sampling"),
    ),
    Part("overlay", 0.35, ("success", "iteration", "mismatch of run", "peak of run")),
)


def main(arguments: Sequence[str] = ()) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__.split("\n")[0])
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--engine", choices=("vllm", "embedded"), default="vllm")
    parser.add_argument("--model", default="smollm2-135m", help="of the overlay: a name, a folder or a GGUF file")
    parser.add_argument("--minutes", type=float, default=MINUTES, help="the most that all parts take together")
    options = parser.parse_args(list(arguments))
    if options.device == "cuda" and not cards():
        parser.exit(2, f"{parser.prog}: {NO_CARD}\n")
    say(f"one {options.device}, engine {options.engine}, at most {options.minutes:g} minutes")
    if options.device == "cpu":
        say("a small shape: that each part works is all that its figures say")
    ends, missing = time.monotonic() + 60.0 * options.minutes, []
    for number, part in enumerate(PARTS):
        share = part.share / sum(each.share for each in PARTS[number:])
        missing += print_figures(part, (ends - time.monotonic()) * share, options.device, options.engine, options.model)
    if missing:
        say(f"not measured: {', '.join(missing)}")
        raise SystemExit(1)


def cards() -> int:
    """The number of cards that NVIDIA's driver shows; asked without torch, which takes seconds to import."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return 0
    count = ctypes.c_int(0)
    fails = driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count))
    return 0 if fails else count.value


def print_figures(part: Part, seconds: float, *arguments: str) -> list[str]:
    """Print the figures of a part as they are found; returns those that are missing after so many seconds."""
    names = [name for name, _ in read_figures(part, seconds, *arguments)]
    return [name for name in part.figures if name not in names]


def read_figures(part: Part, seconds: float, *arguments: str) -> Iterator[tuple[str, str]]:
    """The figures of a part, by a process that is killed when its time is over; `arguments`: device, engine, model."""
    if seconds <= 0:
        say(f"{part.name}: no time is left for it")
        return
    command = [sys.executable, "-m", "benchmarks.gpu_parts", part.name, *arguments]
    child = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    ending = threading.Timer(seconds, child.kill)
    ending.start()
    assert child.stdout is not None
    try:
        for line in child.stdout:
            name, figure = json.loads(line)
            say(f"{name:<16}{figure}")
            yield name, figure
        if child.wait() and ending.is_alive():
            say(f"{part.name}: its process ended with {child.returncode}; what it said is above")
        elif child.returncode:
            say(f"{part.name}: its {seconds:.0f} seconds were over")
    finally:
        ending.cancel()


def say(line: str) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
