"""Ragged batches as peers lay them out: padded rows with a mask, whose tokens are ours in the order of the rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from hypothesis import strategies as st

from turnwise.config.optimization import Aggregation
from turnwise.policy.learner.learner import ReplyTokens
from turnwise.policy.learner.update import token_weights

REWARDS = (0.0, 0.0, 1.0, 1.0, -0.5, 2.5)
"""Few values, so that groups without spread and ties are common."""


@dataclass(frozen=True)
class Padded:
    """Sequences of unequal length, [sequences, longest], in float64; what the mask leaves out holds garbage."""

    mask: torch.Tensor
    """True at reply tokens. Between them lie observation tokens, and padding follows."""
    log_pi: torch.Tensor
    log_mu: torch.Tensor
    reference: torch.Tensor
    entropy: torch.Tensor
    rewards: tuple[float, ...]
    groups: tuple[int, ...]
    advantages: torch.Tensor
    """One per sequence, [sequences]."""

    @property
    def lengths(self) -> list[int]:
        """The reply tokens of each sequence."""
        counts: list[int] = self.mask.sum(dim=1).tolist()
        return counts

    def at_replies(self, values: torch.Tensor) -> torch.Tensor:
        """Values of padded rows at the reply tokens, [replies]."""
        return values[self.mask]

    def reply_tokens(self, aggregation: Aggregation, constant: float | None = None) -> ReplyTokens:
        """What our objective reads, with the weights of an aggregation."""
        rows = torch.arange(len(self.mask)).unsqueeze(1).expand(self.mask.shape)
        weights = token_weights(aggregation, self.lengths, groups=self.groups, constant=constant)
        of_rows = torch.tensor(weights, dtype=torch.float64)
        sequence = rows[self.mask]
        return ReplyTokens(
            engine=self.at_replies(self.log_mu),
            behaviour=self.at_replies(self.log_mu),
            advantages=self.advantages[sequence],
            weights=of_rows[sequence],
            sequence=sequence,
            reference=self.at_replies(self.reference),
            importance=None,
        )


@st.composite
def padded(draw: st.DrawFn, longest: int = 5) -> Padded:
    """Two to six sequences in up to three groups, those of one included, with up to `longest` reply tokens each."""
    count = draw(st.integers(2, 6))
    seed = draw(st.integers(0, 2**32 - 1))
    lengths = draw(st.lists(st.integers(1, longest), min_size=count, max_size=count))
    groups = tuple(draw(st.lists(st.integers(0, 2), min_size=count, max_size=count)))
    rewards = tuple(draw(st.lists(st.sampled_from(REWARDS), min_size=count, max_size=count)))
    random = np.random.default_rng(seed)
    width = 2 * longest
    mask = np.zeros((count, width), dtype=bool)
    for row, length in enumerate(lengths):
        mask[row, np.sort(random.permutation(width - 1)[:length])] = True

    def numbers(low: float, high: float) -> torch.Tensor:
        return torch.from_numpy(random.uniform(low, high, (count, width)))

    log_mu = numbers(-3.0, -0.05)
    return Padded(
        mask=torch.from_numpy(mask),
        log_pi=(log_mu + numbers(-0.6, 0.6)).clamp(max=-0.01),
        log_mu=log_mu,
        reference=numbers(-3.0, -0.05),
        entropy=numbers(0.0, 2.0),
        rewards=rewards,
        groups=groups,
        advantages=torch.from_numpy(random.choice([-1.5, -0.5, 0.0, 0.7, 2.0], count)),
    )


def gradient(value: torch.Tensor, log_pi: torch.Tensor) -> list[float]:
    """The gradient of a value, flat."""
    (slopes,) = torch.autograd.grad(value, log_pi, allow_unused=True)
    found: list[float] = [0.0] * log_pi.numel() if slopes is None else slopes.flatten().tolist()
    return found


def by_sequence(values: Sequence[Sequence[float]]) -> list[float]:
    """One number per sequence, from rows whose entries are all the same."""
    return [float(row[0]) for row in values]
