"""A training step beside one of TRL's GRPOTrainer: the same policy, episodes and observations, in turns in one run.

    python -m benchmarks.against_trl                            4, 10 and 20 turns, replies of 3 and of 12 tokens
    python -m benchmarks.against_trl --turns 20 --reply 3       one row
    python -m benchmarks.against_trl --model FOLDER             of a language model: 3 and 8 turns of 20 tokens
    python -m benchmarks.against_trl --trl-python PATH         with TRL of another environment

Per row: the processor seconds of a step, and of its sampling and its update, medians over the steps; and how far the
two gradients of the first step are apart, both of the episodes that ours sampled. Ours is the real episode loop, an
engine and the learner; TRL's is `GRPOTrainer` with a rollout function that generates with transformers
(`benchmarks/trl_side.py`). One thread a side. Nothing is written to the disk.

8 groups of 8 episodes. A reply ends with the end token or at its full length, and counts as said either way. The world
answers every reply with an observation of 4 or 5 tokens. The policy reads bytes: 2 layers of width 128.

`--model` takes a folder in Hugging Face's layout with a tokenizer, such as `turnwise export RUN --to FOLDER` writes.
Prompts have 160 tokens then, of which 140 are the same for all tasks, and observations 45. TRL updates in micro-batches
of 8 episodes, since the logits of 64 do not fit; its loss is `dapo`, whose mean is over all tokens of the step, as
ours is.

TRL is one of the development dependencies. In an environment of its own: `pip install trl==1.16.0 safetensors` in
addition to torch 2.13.0 for the CPU.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import torch
from safetensors.torch import load_file

from benchmarks.numbers_world import END, FIRST_BYTE, PAD, AnyText, Bytes, Numbers
from turnwise.agent.episode_config import EpisodeConfig
from turnwise.agent.host import RetryPolicy
from turnwise.agent.loop import make_episodes, roll_out
from turnwise.config.model_settings import ModelSettings
from turnwise.credit import CreditBatch, estimate
from turnwise.data.trajectory import Trajectory
from turnwise.policy.architecture import create_policy
from turnwise.policy.engines.contract import Engine, Reply, Sampling
from turnwise.policy.engines.resident import make_engine
from turnwise.policy.learner.learner import Learner
from turnwise.policy.learner.update import UpdateBatch, UpdateSettings

GROUPS, REPLICAS = 8, 8
VOCABULARY, CONTEXT = 256 + FIRST_BYTE, 512
LEARNING_RATE = 3e-4
LANGUAGE_MODEL_CONTEXT, LANGUAGE_MODEL_LEARNING_RATE = 1024, 1e-5
LANGUAGE_MODEL_WORLD = {"prompt": 160, "shared": 140, "observation": 45}
LANGUAGE_MODEL_MICRO_BATCH = 8
"""Episodes of a micro-batch of TRL's."""
MAXIMUM_MISMATCH = {"float32": 1e-3, "bfloat16": 0.1}
TRL_SIDE = Path(__file__).with_name("trl_side.py")


@dataclass(frozen=True)
class Shared:
    """What TRL's side receives: all that the two sides have in common."""

    policy: str
    turns: int
    reply_tokens: int
    steps: int
    replicas: int
    openings: list[list[int]]
    observations: list[list[int]]
    """After each turn, the same in all episodes."""
    micro_batch: int
    """Episodes of a micro-batch."""
    vocabulary: int
    learning_rate: float
    precision: str
    end: int = END
    pad: int = PAD


@dataclass(frozen=True)
class Seconds:
    """Processor seconds of one step."""

    sampling: float
    update: float

    @property
    def step(self) -> float:
        """The whole step."""
        return self.sampling + self.update


class AsSaid:
    """An engine whose replies of full length count as complete, so that the agent does not comment on them."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.submit = engine.submit

    @property
    def in_flight(self) -> int:
        """As the engine's."""
        return self._engine.in_flight

    def step(self) -> list[Reply]:
        """As the engine's."""
        return [Reply(each.episode, each.tokens, each.log_probabilities, True) for each in self._engine.step()]


class Ours:
    """Our side: the episode loop, an engine and the learner."""

    def __init__(self, shared: Shared, world: Numbers, engine: Engine, context: int, model: ModelSettings) -> None:
        self._shared, self._engine = shared, engine
        self.learner = Learner(Path(shared.policy), threads=1, model=model)
        self._steps = 0
        self._frame = Bytes()
        self._rules = EpisodeConfig(
            world=world,
            format=AnyText(),
            limits=None,
            patience=RetryPolicy(),
            frame=self._frame,
            token_budget=context,
            reply_tokens=shared.reply_tokens,
        )
        self._tasks = world.tasks("train", len(shared.openings))
        # The first step's gradient is compared, with a loss that does not depend on how engine and learner differ. At a
        # ratio of 1, which TRL's has there, the clipped loss has the same gradient.
        self._settings = UpdateSettings(
            loss="reinforce",
            learning_rate=shared.learning_rate,
            temperature=1.0,
            micro_batch_tokens=2048,
            mini_batches=1,
            maximum_gradient_norm=1e9,
            maximum_mismatch=MAXIMUM_MISMATCH[model.precision],
        )

    def step(self) -> tuple[Seconds, list[Trajectory]]:
        """Sample and update; the seconds and the episodes."""
        began = time.process_time()
        self._steps += 1
        self._engine.load(Path(self._shared.policy), f"{self._shared}, {self._steps}", self.learner.model)
        self._engine.begin(self._steps, Sampling(1.0, self._shared.reply_tokens, self._frame.end_tokens))
        episodes = make_episodes(self._rules, self._tasks, self._shared.replicas, self._steps)
        trajectories = roll_out(episodes, AsSaid(self._engine), self._frame.decode).trajectories
        sampled_at = time.process_time()
        credit = CreditBatch(
            group=[each.group for each in trajectories],
            turn_rewards=[[0.0] * len(each.turns) for each in trajectories],  # type: ignore[arg-type]
            outcome=[reward(each) for each in trajectories],
        )
        advantages = estimate("grpo", credit, rewards="outcome", deviation="none")
        sequences = [segment for each in trajectories for segment in each.segments()]
        self.learner.update(UpdateBatch.from_turns(sequences, advantages), self._settings)
        self._settings = self._settings.model_copy(update={"loss": "clipped"})
        return Seconds(sampled_at - began, time.process_time() - sampled_at), trajectories

    def gradient(self) -> dict[str, torch.Tensor]:
        """That of the first step, from AdamW's first moment, which is then 0.1 x the gradient."""
        optimizer = self.learner._optimizer
        moments = optimizer._optimizer.state
        return {name: moments[parameter]["exp_avg"] / 0.1 for name, parameter in optimizer._parameters.items()}


def reward(trajectory: Trajectory) -> float:
    """The share of odd tokens, summed over the replies: what TRL's side computes, too."""
    return sum(sum(token % 2 for token in turn.reply_tokens) / len(turn.reply_tokens) for turn in trajectory.turns)


class Theirs:
    """TRL's side, in a process of its own."""

    def __init__(self, shared: Shared, python: str) -> None:
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        self._process = subprocess.Popen(
            [python, "-W", "ignore", str(TRL_SIDE)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        self._send(asdict(shared))

    def step(self, line: dict[str, Any] | None = None) -> Seconds:
        """One step, on sampled or on given episodes."""
        self._send(line or {})
        assert self._process.stdout is not None
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError(f"TRL's side ended with status {self._process.wait()}: its last words are above")
        return Seconds(**json.loads(answer))

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.terminate()
        self._process.wait()

    def _send(self, content: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(content) + "\n")
        self._process.stdin.flush()


def trl_batch(trajectories: Sequence[Trajectory]) -> dict[str, list[Any]]:
    """The episodes as TRL's rollout function returns them."""
    segments = [trajectory.segments()[0] for trajectory in trajectories]
    begins = [len(trajectory.turns[0].observation_tokens) for trajectory in trajectories]
    pairs = list(zip(segments, begins, strict=True))
    return {
        "prompt_ids": [list(map(int, each.tokens[:begin])) for each, begin in pairs],
        "completion_ids": [list(map(int, each.tokens[begin:])) for each, begin in pairs],
        "logprobs": [list(map(float, each.log_probabilities[begin:])) for each, begin in pairs],
        "env_mask": [list(map(int, each.mask[begin:])) for each, begin in pairs],
        "given": [reward(trajectory) for trajectory in trajectories],
    }


def relative_difference(gradients: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> float:
    """The L2 norm of the difference of all gradients together, over that of the expected ones."""
    difference = torch.cat([(gradients[name] - expected[name]).flatten() for name in expected])
    return float(difference.norm() / torch.cat([each.flatten() for each in expected.values()]).norm())


def compare(shared: Shared, sides: dict[str, Ours], python: str, folder: Path) -> None:
    """Write one row for each side: a step of each in turns, the first of all on the same episodes as TRL's."""
    theirs = Theirs(shared, python)
    seconds_by_side: dict[str, list[Seconds]] = {name: [] for name in ("TRL", *sides)}
    try:
        first = {name: side.step()[1] for name, side in sides.items()}
        file = folder / "gradient.safetensors"
        theirs.step({"episodes": trl_batch(next(iter(first.values()))), "gradient": str(file)})
        apart = relative_difference(next(iter(sides.values())).gradient(), load_file(file))
        for _ in range(shared.steps - 1):
            seconds_by_side["TRL"].append(theirs.step())
            for name, side in sides.items():
                seconds_by_side[name].append(side.step()[0])
    finally:
        theirs.close()
    trl_step = statistics.median(each.step for each in seconds_by_side["TRL"])
    for name, steps in seconds_by_side.items():
        step, sampling, update = (
            statistics.median(getattr(each, part) for each in steps) for part in ("step", "sampling", "update")
        )
        row = f"{shared.turns:>5}  {shared.reply_tokens:>5}  {name:<9} {step:>7.3f} {sampling:>9.3f} {update:>7.3f}"
        note = "" if name == "TRL" else f"  {step / trl_step:>5.2f}"
        sys.stdout.write(row + note + (f"  {apart:.1e}\n" if name == next(iter(sides)) else "\n"))
        sys.stdout.flush()


def main(arguments: Sequence[str] = ()) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.against_trl", description=__doc__.split("\n")[0])
    parser.add_argument("--model", type=Path, metavar="FOLDER", help="a language model in Hugging Face's layout")
    parser.add_argument("--turns", type=int, nargs="+", help="default: 4 10 20; of a language model 3 8")
    parser.add_argument("--reply", type=int, nargs="+", help="tokens; default: 3 12; of a language model 20")
    parser.add_argument("--groups", type=int, default=GROUPS, help=f"of {REPLICAS} episodes each")
    parser.add_argument("--steps", type=int, default=6, help="per row; the first counts for the gradient alone")
    parser.add_argument("--engines", nargs="+", choices=("embedded", "vllm"), default=["embedded", "vllm"])
    parser.add_argument("--precision", choices=sorted(MAXIMUM_MISMATCH), default="float32", help="of both sides")
    parser.add_argument("--trl-python", default=sys.executable, help="the interpreter of an environment with TRL")
    options = parser.parse_args(list(arguments))
    model: Path | None = options.model
    context = LANGUAGE_MODEL_CONTEXT if model else CONTEXT
    settings = ModelSettings(precision=options.precision, counted_tokens="computed" if model else "all")
    torch.set_num_threads(1)
    sys.stdout.write("turns  reply  side         step  sampling  update  over TRL  gradients apart\n")
    with tempfile.TemporaryDirectory() as folder:
        policy = model or Path(folder) / "policy"
        if model is None:
            create_policy(
                policy,
                vocabulary_size=VOCABULARY,
                context_length=CONTEXT,
                end_token=END,
                pad_token=PAD,
                seed=0,
                layers=2,
            )
        engines = {
            name: make_engine(
                name,
                context_length=context,
                maximum_episodes=options.groups * REPLICAS,
                precision=options.precision,
            )
            for name in options.engines
        }
        frame = Bytes()
        for reply_tokens in options.reply or ([20] if model else [3, 12]):
            for turns in options.turns or ([3, 8] if model else [4, 10, 20]):
                world = Numbers(turns, **(LANGUAGE_MODEL_WORLD if model else {}))
                shared = Shared(
                    policy=str(policy),
                    turns=turns,
                    reply_tokens=reply_tokens,
                    steps=options.steps,
                    replicas=REPLICAS,
                    openings=[list(frame.opening(None, world.opening(number))) for number in range(options.groups)],
                    observations=[
                        list(frame.continuation(world.observation_text(turn + 1), ())) for turn in range(turns)
                    ],
                    micro_batch=LANGUAGE_MODEL_MICRO_BATCH if model else options.groups * REPLICAS,
                    vocabulary=json.loads((policy / "config.json").read_text(encoding="utf-8"))["vocab_size"],
                    learning_rate=LANGUAGE_MODEL_LEARNING_RATE if model else LEARNING_RATE,
                    precision=options.precision,
                )
                sides = {name: Ours(shared, world, engine, context, settings) for name, engine in engines.items()}
                compare(shared, sides, options.trl_python, Path(folder))


if __name__ == "__main__":
    main(sys.argv[1:])
    os._exit(0)  # tearing vLLM down takes seconds
