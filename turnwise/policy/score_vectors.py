"""Score vectors: for each turn, the gradient of its reply's log-probability, sketched to a fixed length.

    S_(i,t) = sum over the tokens of reply t of trajectory i of d log pi(token) / d theta

A policy gradient is a sum of them, each times an advantage: once they are known, the gradient of any advantage
estimator on the same trajectories is a matrix product. A policy has too many parameters to store one such vector per
turn, so each is stored as its **count sketch** (Charikar, Chen and Farach-Colton 2002; "feature hashing", Weinberger
et al. 2009, arXiv 0902.2206): every parameter is assigned, once and for all, to one of d buckets with a random sign,
and a bucket holds the signed sum of its entries.

    sketch(x)_b = sum over the parameters j in bucket b of sign_j x_j

The sketch is linear and preserves inner products in expectation: <sketch(x), sketch(y)> has mean <x, y> and a variance
of about (|x|^2 |y|^2 + <x, y>^2) / d. So the error of a norm is about 0.7 / sqrt(d) of it, and that of a cosine about
1 / sqrt(d): with d = 4096 that is 1.1% and 1.6%.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from turnwise.config.model_settings import PLAIN
from turnwise.data.arrays import SequenceBatch, Sequences
from turnwise.policy.determinism import reproducible_computing
from turnwise.policy.model import load_policy, trained_parameters
from turnwise.policy.reply_states import reply_states
from turnwise.policy.scoring import lay_out, score_replies
from turnwise.seeding import generator


class CountSketch:
    """A fixed random projection of the gradients of all parameters to one vector of `dimensions` numbers."""

    def __init__(self, parameters: Mapping[str, torch.Tensor], dimensions: int, seed: int) -> None:
        self._dimensions = dimensions
        self._dealt: list[tuple[torch.Tensor, torch.Tensor]] = []
        for name, parameter in parameters.items():
            noise = generator(seed, "sketch", name)
            buckets = noise.integers(dimensions, size=parameter.numel(), dtype=np.int32)
            signs = noise.integers(2, size=parameter.numel(), dtype=np.int8) * 2 - 1
            self._dealt.append(
                (torch.from_numpy(buckets).to(parameter.device), torch.from_numpy(signs).to(parameter.device))
            )

    def __call__(self, gradients: Sequence[torch.Tensor]) -> torch.Tensor:
        """The sketch, [dimensions] in float64, of one gradient per parameter in the order of the parameters."""
        total = torch.zeros(self._dimensions, dtype=torch.float64, device=gradients[0].device)
        for gradient, (buckets, signs) in zip(gradients, self._dealt, strict=True):
            total.index_add_(0, buckets, gradient.flatten().double() * signs)
        return total


def score_vectors(
    policy: Path,
    sequences: Sequences,
    *,
    temperature: float,
    dimensions: int,
    seed: int,
    threads: int,
    device: str = "cpu",
    on_progress: Callable[[int, int], None] | None = None,
) -> NDArray[np.float32]:
    """The sketched score vectors of all turns that have replies, [turns, dimensions]: by sequence, then by turn.

    They are over all parameters of the policy; `temperature` is the sampling temperature, `seed` that of the sketch.
    `on_progress` is called with the number of sequences done and in all.
    """
    model = load_policy(policy, PLAIN, device)
    parameters = trained_parameters(model)
    sketch = CountSketch(parameters, dimensions, seed)
    pad_token = model.config.pad_token_id or 0
    rows = []
    with reproducible_computing(threads):
        for done, sequence in enumerate(sequences, 1):
            (alone,) = lay_out(SequenceBatch.of([sequence]), len(sequence.tokens), pad_token, torch.device(device))
            states = reply_states(model, alone)
            scored, _ = score_replies(
                model, states, alone.targets, temperature=temperature, chunk_tokens=PLAIN.logit_chunk_tokens
            )
            token_turns = torch.tensor([turn for turn in sequence.turn_of_token if turn >= 0], device=scored.device)
            turns = token_turns.unique().tolist()
            for turn in turns:
                gradients = torch.autograd.grad(
                    scored[token_turns == turn].sum(), list(parameters.values()), retain_graph=turn != turns[-1]
                )
                rows.append(sketch(gradients).float().cpu().numpy())
            if on_progress is not None:
                on_progress(done, len(sequences))
    return np.array(rows, dtype=np.float32).reshape(-1, dimensions)
