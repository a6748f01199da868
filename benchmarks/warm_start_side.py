"""One side of `benchmarks.warm_start`: the supervised steps of one checkout's learner, some for each line read.

Run as a script with the checkout in PYTHONPATH, so that the learner is the checkout's. It reads one line of JSON (what
`benchmarks.warm_start.Side.wanted` holds), and for each further line trains to the next check, saves the policy, and
writes a line: the step, the processor seconds of training so far, and the mean loss since the last check.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

os.environ.update(OMP_NUM_THREADS="1", OMP_WAIT_POLICY="PASSIVE")

import numpy as np

from turnwise import seeding
from turnwise.policy.learner.learner import Learner


def reader_of(file: str) -> tuple[int, Callable[[Sequence[int]], Any]]:
    """The number of sequences in a file, and what gives some of them as the checkout's learner takes them."""
    arrays = np.load(file)
    batches = importlib.util.find_spec("turnwise.data.arrays") is not None  # earlier ones had tuples
    module = importlib.import_module("turnwise.data.arrays" if batches else "turnwise.data.trajectory")
    parts = zip(*(np.split(arrays[name], arrays["offsets"][1:-1]) for name in ("tokens", "turns")), strict=True)
    each = [
        module.TokenSequence(tuple(tokens.tolist()), tuple(turns.tolist()), (0.0,) * len(tokens))
        for tokens, turns in parts
    ]
    if batches:
        return len(each), module.SequenceBatch.of(each).select
    return len(each), lambda draws: [each[draw] for draw in draws]


def main() -> None:
    request = json.loads(sys.stdin.readline())
    rates = request["rates"]
    many, select = reader_of(request["sequences"])
    learner = Learner(Path(request["policy"]), threads=1)
    seconds, step = 0.0, 0
    for _ in sys.stdin:
        losses = []
        while step < len(rates) and (not losses or step % request["every"]):
            step += 1
            draws = seeding.generator(request["seed"], "demonstrations", step).integers(many, size=request["batch"])
            began = time.process_time()
            metrics = learner.supervised_step(
                select(draws),
                learning_rate=rates[step - 1],
                micro_batch_tokens=request["micro_batch_tokens"],
                weight_decay=request["weight_decay"],
                **request["options"],
            )
            seconds += time.process_time() - began
            losses.append(metrics["loss"])
        learner.save(Path(request["folder"]))
        sys.stdout.write(json.dumps({"step": step, "seconds": seconds, "loss": sum(losses) / len(losses)}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
