"""What vLLM does in an engine step, in milliseconds of processor time: the account behind `docs/performance.md`.

    python -m benchmarks.vllm_steps                     10 turns, replies of 3 tokens, 8 x 8 episodes
    python -m benchmarks.vllm_steps --turns 4 --reply 12
    python -m benchmarks.vllm_steps --model FOLDER --precision bfloat16
                                                        a language model: 3 turns of 20 tokens, and the bound

Samples the episodes of `benchmarks.against_trl` with vLLM and with the embedded engine in turns, one thread each. Parts
of vLLM's step are timed by wrapping its methods; what they leave of a step is vLLM's remaining Python.

With a language model vLLM is alone, and the bound of its sampling is measured after each round: the bare products of
the same numbers of tokens with the same weights, each layer's own, which reads every weight once a step. Attention,
normalisation, the choice of tokens and Python count as nothing in it.
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
from safetensors.torch import load_file

from benchmarks.against_trl import (
    CONTEXT,
    GROUPS,
    LANGUAGE_MODEL_CONTEXT,
    LANGUAGE_MODEL_WORLD,
    REPLICAS,
    VOCABULARY,
    AsSaid,
)
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

LANGUAGE_MODEL_MOST_TOKENS = 16_384
"""Of one step: more than vLLM takes at once."""


class Timed:
    """An engine whose replies count as said, and what its calls cost in processor seconds."""

    def __init__(self, engine: Engine) -> None:
        self._engine, self._as_said = engine, AsSaid(engine)
        self.seconds: dict[str, float] = {}
        self.steps = 0
        self.scheduled: list[tuple[int, int]] = []
        """Of each step of vLLM, the tokens that went through the layers, and the replies that got their next one."""

    @property
    def in_flight(self) -> int:
        """As the engine's."""
        return self._engine.in_flight

    def submit(self, episode: int, context: Sequence[int], reply_tokens: int | None = None) -> None:
        """As the engine's."""
        self.time_calls("submit", self._engine.submit)(episode, context, reply_tokens)

    def step(self) -> list[Reply]:
        """As the engine's, timed."""
        self.steps += 1
        replies: list[Reply] = self.time_calls("step", self._as_said.step)()
        return replies

    def time_calls(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        """The call, whose processor seconds are added up under this name."""

        def timed(*arguments: Any, **keywords: Any) -> Any:
            began = time.process_time()
            try:
                return call(*arguments, **keywords)
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
        setattr(owner, method, timed.time_calls(name, getattr(owner, method)))
    executor = core.model_executor
    execute = executor.execute_model

    def execute_model(scheduled: Any, *arguments: Any, **keywords: Any) -> Any:
        if scheduled.total_num_scheduled_tokens:
            timed.scheduled.append((scheduled.total_num_scheduled_tokens, len(scheduled.num_scheduled_tokens)))
        return execute(scheduled, *arguments, **keywords)

    executor.execute_model = execute_model
    outputs = engine._engine.output_processor
    outputs.process_outputs = timed.time_calls("process_outputs", outputs.process_outputs)


class BareProducts:
    """A language model's linear maps alone, with its weights: those of a layer that read the same states as one."""

    def __init__(self, policy: Path, precision: str) -> None:
        dtype = getattr(torch, precision)
        tensors = {name: tensor.to(dtype) for name, tensor in load_file(policy / "model.safetensors").items()}
        self._layers = []
        for layer in range(sum(name.endswith("o_proj.weight") for name in tensors)):
            layer_weights = {
                name.split(".")[-2]: tensor
                for name, tensor in tensors.items()
                if name.startswith(f"model.layers.{layer}.")
            }
            for joined in (("q_proj", "k_proj", "v_proj"), ("o_proj",), ("gate_proj", "up_proj"), ("down_proj",)):
                self._layers.append(torch.cat([layer_weights[name] for name in joined]))
        self._output = tensors.get("lm_head.weight", tensors["model.embed_tokens.weight"])
        widths = {matrix.shape[1] for matrix in [*self._layers, self._output]}
        self._states = {width: torch.randn(LANGUAGE_MODEL_MOST_TOKENS, width, dtype=dtype) for width in widths}

    def seconds(self, scheduled: Sequence[tuple[int, int]]) -> float:
        """Processor seconds of the products of these steps."""
        began = time.process_time()
        with torch.inference_mode():
            for tokens, picked in scheduled:
                for matrix in self._layers:
                    torch.nn.functional.linear(self._states[matrix.shape[1]][:tokens], matrix)
                torch.nn.functional.linear(self._states[self._output.shape[1]][:picked], self._output)
        return time.process_time() - began


def main(arguments: Sequence[str] = ()) -> None:
    """Print milliseconds per engine step, by part."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.vllm_steps", description=__doc__.split("\n")[0])
    parser.add_argument("--model", type=Path, metavar="FOLDER", help="a language model in Hugging Face's layout")
    parser.add_argument("--precision", choices=("float32", "bfloat16"), default="float32", help="of a language model")
    parser.add_argument("--turns", type=int, help="default: 10; of a language model 3")
    parser.add_argument("--reply", type=int, help="tokens; default: 3; of a language model 20")
    parser.add_argument("--rounds", type=int, default=4)
    options = parser.parse_args(list(arguments))
    torch.set_num_threads(1)
    language_model: Path | None = options.model
    turns, reply = options.turns or (3 if language_model else 10), options.reply or (20 if language_model else 3)
    world, frame = Numbers(turns, **(LANGUAGE_MODEL_WORLD if language_model else {})), Bytes()
    context = LANGUAGE_MODEL_CONTEXT if language_model else CONTEXT
    rules = EpisodeConfig(
        world=world,
        format=AnyText(),
        limits=None,
        patience=RetryPolicy(),
        frame=frame,
        token_budget=context,
        reply_tokens=reply,
    )
    names = ("vllm",) if language_model else ("vllm", "embedded")
    rounds_by_side: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    with tempfile.TemporaryDirectory() as folder:
        policy = language_model or Path(folder) / "policy"
        if language_model is None:
            create_policy(
                policy,
                vocabulary_size=VOCABULARY,
                context_length=context,
                end_token=END,
                pad_token=PAD,
                seed=0,
                layers=2,
            )
        sides: dict[str, Timed] = {}
        for name in names:
            engine = make_engine(
                name,  # type: ignore[arg-type]
                context_length=context,
                maximum_episodes=GROUPS * REPLICAS,
                precision=options.precision,
            )
            engine.load(policy, name)
            sides[name] = Timed(engine)
            if name == "vllm":
                watch(sides[name], engine)
        bare = BareProducts(language_model, options.precision) if language_model else None
        for seed in range(options.rounds + 1):
            for name, timed in sides.items():
                timed.seconds, timed.steps = {}, 0
                timed.scheduled.clear()
                timed._engine.begin(seed, Sampling(1.0, reply, frame.end_tokens))
                began = time.process_time()
                roll_out(make_episodes(rules, world.tasks("train", GROUPS), REPLICAS, seed), timed, frame.decode)
                timed.seconds["all"] = time.process_time() - began
                if bare is not None:
                    timed.seconds["bare products"] = bare.seconds(timed.scheduled)
                per_step = {part: 1000 * seconds / timed.steps for part, seconds in timed.seconds.items()}
                rounds_by_side[name].append({**per_step, "steps": float(timed.steps)})
    for name, rounds in rounds_by_side.items():
        medians = {part: statistics.median(each[part] for each in rounds[1:]) for part in rounds[-1]}
        sys.stdout.write(f"{name}: {medians['steps']:.0f} steps, {medians['all']:.2f} ms each\n")
        for part in ("submit", "step", *PARTS, "process_outputs"):
            if part in medians:
                sys.stdout.write(f"  {part:<36}{medians[part]:>7.2f}\n")
        rest = medians["all"] - medians["step"] - medians["submit"]
        sys.stdout.write(f"  {'the loop and the world':<36}{rest:>7.2f}\n")
        if bare is not None:
            share = medians["bare products"] / medians["all"]
            tokens, picked = (sum(each) for each in zip(*sides[name].scheduled, strict=True))
            sys.stdout.write(
                f"  {'the bound: bare products':<36}{medians['bare products']:>7.2f}, {share:.0%} of all; "
                f"{tokens:,} tokens read, {picked:,} chosen\n"
            )


if __name__ == "__main__":
    main(sys.argv[1:])
    sys.stdout.flush()
    os._exit(0)  # tearing vLLM down takes seconds
