"""What the tests of gradients share. It loads torch, unlike `policy_samples`, which must be loaded before torch."""

from __future__ import annotations

import copy
from functools import partial
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel

from turnwise.data.arrays import SequenceBatch, TokenSequence
from turnwise.policy.learner.learner import Learner
from turnwise.policy.optimizer import NamedAdamW
from turnwise.policy.scoring import MicroBatch, lay_out

_loaded: dict[bytes, Learner] = {}


def loaded_learner(policy: Path) -> Learner:
    """What `Learner(policy, threads=1)` is: a copy, in a sixth of the time, if a policy of these bytes was loaded."""
    contents = b"".join(file.read_bytes() for file in sorted(policy.iterdir()))
    if contents not in _loaded:
        _loaded[contents] = Learner(policy, threads=1)
    return copy.deepcopy(_loaded[contents])


def precise_learner(policy: Path) -> Learner:
    """A learner in float64, for proofs."""
    learner = loaded_learner(policy)
    in_float64(learner.model)
    return learner


def in_float64(model: PreTrainedModel) -> PreTrainedModel:
    """The model in float64, its norms included, which transformers computes in float32 whatever their states are."""
    for module in model.double().modules():
        if hasattr(module, "variance_epsilon"):
            module.forward = partial(_norm, module)  # type: ignore[method-assign]
    return model


def _norm(module: Any, states: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.rms_norm(states, states.shape[-1:], module.weight, module.variance_epsilon)


def gradients_of_first_step(optimizer: NamedAdamW) -> dict[str, torch.Tensor]:
    """AdamW's first moment after its first step is 0.1 x the gradient."""
    moments = optimizer._optimizer.state
    return {name: moments[parameter]["exp_avg"] / 0.1 for name, parameter in optimizer._parameters.items()}


def relative_difference(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> float:
    """The L2 norm of the difference of all gradients together, over that of the expected ones."""
    assert found.keys() == expected.keys()
    difference = torch.cat([(found[name] - expected[name]).flatten().double() for name in expected])
    return float(difference.norm() / torch.cat([expected[name].flatten().double() for name in expected]).norm())


def micro_batch_of(lengths: list[int]) -> MicroBatch:
    """Sequences of these lengths, in which every third token and the last one is a reply token."""
    draw = torch.Generator().manual_seed(1)
    sequences = []
    for length in lengths:
        tokens = torch.randint(3, 300, (length,), generator=draw).tolist()
        turns = [place // 3 if place % 3 == 2 or place == length - 1 else -1 for place in range(length)]
        sequences.append(TokenSequence(tuple(tokens), tuple(turns), (0.0,) * length))
    (micro_batch,) = lay_out(SequenceBatch.of(sequences), 10_000, 0, torch.device("cpu"))
    return micro_batch
