"""What credit and an update cost besides the model, and the model itself, in processor seconds.

Per batch of 16 x 8 trajectories: the stage `credit`, and the stage `update` without loading the learner, the model's
forward and backward passes, the optimizer's step and saving. What is left is reading trajectories, placing advantages
on tokens, weighing them, and laying out micro-batches: the part that grows with the number of tokens in Python, if a
loop goes over them. The model's part is there twice, as it is and with transformers' own forward pass, for a policy of
1 layer of width 32.

    python -m benchmarks.credit_and_update
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch

from tasks.credit.credit import CreditParameters, credit
from tasks.restoring import MODELS
from tasks.update.update import UpdateParameters, update
from turnwise.config.schema import Credit, RewardSection
from turnwise.data.trajectory import Ending, Trajectory, Turn
from turnwise.data.trajectory_files import write_trajectories
from turnwise.experiment import load
from turnwise.policy import forward_pass
from turnwise.policy.architecture import create_policy
from turnwise.policy.learner import learner as learner_module
from turnwise.policy.reply_states import padded_reply_states
from turnwise.seeding import generator
from turnwise.store import Reference, default_store
from turnwise.world import Task

ROOT = Path(__file__).parents[1]
ROUNDS = 3
GROUPS, REPLICAS, REPLY, OBSERVATION, CONTEXT = 16, 8, 12, 5, 512
TURNS = {"2 to 4 turns": (2, 4), "20 turns": (20, 20)}
RULES = ("mt-grpo", "reinforce++")


def trajectories(turns: tuple[int, int]) -> list[Trajectory]:
    """A batch with random tokens and rewards."""
    draw = generator(0, "credit and update", *turns)

    def turn(first: bool) -> Turn:
        observed, reply = draw.integers(3, 300, 40 if first else OBSERVATION), draw.integers(3, 300, REPLY)
        return Turn(
            observation="seen",
            observation_tokens=tuple(observed.tolist()),
            reply="said",
            reply_tokens=tuple(reply.tolist()),
            log_probabilities=tuple((-5.0 - draw.random(REPLY)).tolist()),
            thought="",
            actions=("up",),
            invalid=None,
            effective=True,
            rewards={"goal": float(draw.integers(2)), "format": 1.0},
        )

    return [
        Trajectory(
            Task("hill", f"hill/{group}", "train", group),
            group,
            replica,
            tuple(turn(number == 0) for number in range(draw.integers(turns[0], turns[1], endpoint=True))),
            Ending.FAILURE,
            "the end",
        )
        for group in range(GROUPS)
        for replica in range(REPLICAS)
    ]


@contextmanager
def model_seconds() -> Iterator[list[float]]:
    """The processor seconds of the model's passes, the optimizer, loading and saving, added up while this is open."""
    seconds = [0.0]

    def timed(function: Callable[..., Any]) -> Callable[..., Any]:
        def within(*arguments: Any, **keywords: Any) -> Any:
            began = time.process_time()
            try:
                return function(*arguments, **keywords)
            finally:
                seconds[0] += time.process_time() - began

        return within

    model_functions = [
        (forward_pass, "reply_states"),
        (forward_pass, "score_replies"),
        (torch.Tensor, "backward"),
        (learner_module.Learner, "_step"),
        (learner_module.Learner, "_check_finite"),
        (learner_module.Learner, "save"),
        (MODELS, "take_learner"),
    ]
    with ExitStack() as stack:
        for owner, name in model_functions:
            stack.enter_context(patch.object(owner, name, timed(getattr(owner, name))))
        yield seconds


def measure(rollout: Reference, policy: Reference, rule: str) -> tuple[float, float, float, float]:
    """The processor seconds of credit, of an update besides the model, of the model, and of transformers' forward pass
    in its place, on one batch.
    """
    experiment = load(ROOT / "params.yaml", [], {"optimization.maximum_mismatch": 100.0})
    rewards = {
        "goal": RewardSection(level="turn", weight=1.0),
        "format": RewardSection(level="outcome", weight=0.2),
    }
    section = CreditParameters(rewards=rewards, credit=Credit(estimator=rule, options={}), reference=None)
    began = time.process_time()
    credited = credit.fn(section, rollout=rollout)
    credit_seconds = time.process_time() - began
    parameters = UpdateParameters.of(experiment.optimization, experiment.compute, 1.0, seed=1, iteration=1)
    with model_seconds() as ours:
        began = time.process_time()
        update.fn(parameters, policy=policy, rollout=rollout, credit=credited)
        update_seconds = time.process_time() - began - ours[0]
    with patch.object(forward_pass, "reply_states", padded_reply_states), model_seconds() as theirs:
        update.fn(parameters, policy=policy, rollout=rollout, credit=credited)
    return credit_seconds, update_seconds, ours[0], theirs[0]


def main() -> None:
    """Print a table: the least of several rounds, which other work on the machine disturbs least."""
    with tempfile.TemporaryDirectory() as home:
        os.environ["TURNWISE_HOME"] = home
        with default_store().write("policy") as draft:
            sizes = {"hidden": 32, "layers": 1, "heads": 2, "key_value_heads": 1, "feed_forward": 64}
            create_policy(
                draft.folder, vocabulary_size=300, context_length=CONTEXT, end_token=1, pad_token=2, seed=0, **sizes
            )
        print(f"{GROUPS} x {REPLICAS} trajectories, replies of {REPLY} tokens: processor milliseconds")
        print(f"{'':14}{'rule':14}{'credit':>10}{'update besides the model':>28}{'model':>8}{'theirs':>8}{'ratio':>7}")
        for name, turns in TURNS.items():
            with default_store().write("rollout") as rollout:
                write_trajectories(rollout.folder, trajectories(turns))
            for rule in RULES:
                rounds = [measure(rollout.reference, draft.reference, rule) for _ in range(ROUNDS)]
                credit_ms, update_ms, ours, theirs = (1000 * min(column) for column in zip(*rounds, strict=True))
                print(
                    f"{name:14}{rule:14}{credit_ms:10.0f}{update_ms:28.0f}{ours:8.0f}{theirs:8.0f}{ours / theirs:7.2f}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
