"""What vLLM does in an engine step, in milliseconds of processor time: the account behind `docs/performance.md`.

    python -m benchmarks.vllm_steps                     10 turns, replies of 3 tokens, 8 x 8 episodes
    python -m benchmarks.vllm_steps --turns 4 --reply 12

Samples the episodes of `benchmarks.against_trl` with vLLM and with the embedded engine in turns, one thread each. Parts
of vLLM's step are timed by wrapping its methods; what they leave of a step is vLLM's remaining Python.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import torch

from benchmarks.against_trl import CONTEXT, GROUPS, REPLICAS, VOCABULARY, AsSaid
from benchmarks.numbers_world import END, PAD, AnyText, Bytes, Numbers
from turnwise.agent.episode_config import EpisodeConfig
from turnwise.agent.host import RetryPolicy
from turnwise.agent.loop import make_episodes, roll_out
from turnwise.policy.architecture import create_policy
from turnwise.policy.engines.contract import Engine, Reply, Sampling
from turnwise.policy.engines.resident import make_engine

PARTS = {
    "schedule": "scheduler.schedule",
    "execute_model": "model_executor.execute_model",
    "  of which the states of requests": "model_executor.driver_worker.worker.model_runner._update_states",
    "  of which its inputs": "model_executor.driver_worker.worker.model_runner._prepare_inputs",
    "  of which attention's metadata": "model_executor.driver_worker.worker.model_runner._build_attention_metadata",
    "  of which the model": "model_executor.driver_worker.worker.model_runner._model_forward",
    "sample_tokens": "model_executor.sample_tokens",
    "  of which the sampler": "model_executor.driver_worker.worker.model_runner._sample",
    "  of which bookkeeping": "model_executor.driver_worker.worker.model_runner._bookkeeping_sync",
    "update_from_output": "scheduler.update_from_output",
}
"""Methods of vLLM's engine core, in the order in which a step calls them."""


class Timed:
    """An engine whose replies count as said, and what its calls cost in processor seconds."""

    def __init__(self, engine: Engine) -> None:
        self._engine, self._as_said = engine, AsSaid(engine)
        self.seconds: dict[str, float] = {}
        self.steps = 0

    @property
    def in_flight(self) -> int:
        """As the engine's."""
        return self._engine.in_flight

    def submit(self, episode: int, context: Sequence[int], reply_tokens: int | None = None) -> None:
        """As the engine's."""
        self.measured("submit", self._engine.submit)(episode, context, reply_tokens)

    def step(self) -> list[Reply]:
        """As the engine's, timed."""
        self.steps += 1
        replies: list[Reply] = self.measured("step", self._as_said.step)()
        return replies

    def measured(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        """The call, whose processor seconds are added up under this name."""

        def timed(*arguments: Any, **named: Any) -> Any:
            began = time.process_time()
            try:
                return call(*arguments, **named)
            finally:
                self.seconds[name] = self.seconds.get(name, 0.0) + time.process_time() - began

        return timed


def watch(timed: Timed, engine: Any) -> None:
    """Time the parts of a started vLLM."""
    core = engine._engine.engine_core.engine_core
    for name, path in PARTS.items():
        *owners, method = path.split(".")
        owner = core
        for each in owners:
            owner = getattr(owner, each)
        setattr(owner, method, timed.measured(name, getattr(owner, method)))
    outputs = engine._engine.output_processor
    outputs.process_outputs = timed.measured("process_outputs", outputs.process_outputs)


def main(arguments: Sequence[str] = ()) -> None:
    """Print milliseconds per engine step, by part."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.vllm_steps", description=__doc__.split("\n")[0])
    parser.add_argument("--turns", type=int, default=10)
    parser.add_argument("--reply", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=4)
    chosen = parser.parse_args(list(arguments))
    torch.set_num_threads(1)
    world, frame = Numbers(chosen.turns), Bytes()
    rules = EpisodeConfig(
        world=world,
        format=AnyText(),
        limits=None,
        patience=RetryPolicy(),
        frame=frame,
        token_budget=CONTEXT,
        reply_tokens=chosen.reply,
    )
    found: dict[str, list[dict[str, float]]] = {"vllm": [], "embedded": []}
    with tempfile.TemporaryDirectory() as folder:
        policy = Path(folder) / "policy"
        create_policy(
            policy, vocabulary_size=VOCABULARY, context_length=CONTEXT, end_token=END, pad_token=PAD, seed=0, layers=2
        )
        sides: dict[str, Timed] = {}
        for name in ("vllm", "embedded"):
            engine = make_engine(name, context_length=CONTEXT, maximum_episodes=GROUPS * REPLICAS)  # type: ignore[arg-type]
            engine.load(policy, name)
            sides[name] = Timed(engine)
            if name == "vllm":
                watch(sides[name], engine)
        for seed in range(chosen.rounds + 1):
            for name, timed in sides.items():
                timed.seconds, timed.steps = {}, 0
                timed._engine.begin(seed, Sampling(1.0, chosen.reply, frame.end_tokens))
                began = time.process_time()
                roll_out(make_episodes(rules, world.tasks("train", GROUPS), REPLICAS, seed), timed, frame.decode)
                timed.seconds["all"] = time.process_time() - began
                per_step = {part: 1000 * seconds / timed.steps for part, seconds in timed.seconds.items()}
                found[name].append({**per_step, "steps": float(timed.steps)})
    for name, rounds in found.items():
        medians = {part: statistics.median(each[part] for each in rounds[1:]) for part in rounds[-1]}
        sys.stdout.write(f"{name}: {medians['steps']:.0f} steps, {medians['all']:.2f} ms each\n")
        for part in ("submit", "step", *PARTS, "process_outputs"):
            if part in medians:
                sys.stdout.write(f"  {part:<36}{medians[part]:>7.2f}\n")
        rest = medians["all"] - medians["step"] - medians["submit"]
        sys.stdout.write(f"  {'the loop and the world':<36}{rest:>7.2f}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
    sys.stdout.flush()
    os._exit(0)  # tearing vLLM down takes seconds
