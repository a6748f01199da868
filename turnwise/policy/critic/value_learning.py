"""The training data of a critic: its batch, the mini-batches, and the settings."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from turnwise.data.trajectory import TokenSequence
from turnwise.errors import ConfigurationError
from turnwise.seeding import generator

Trunk = Literal["own", "policy"]
Initial = Literal["policy", "random"]


@dataclass(frozen=True)
class CriticSettings:
    """How a critic is made and trained. Raises ConfigurationError for settings that do not fit together."""

    learning_rate: float
    micro_batch_tokens: int
    """Padded tokens per forward pass."""
    trunk: Trunk = "own"
    """Whether the critic has a trunk of its own or shares the policy's."""
    initial: Initial = "policy"
    """Initial weights of a trunk of its own: the policy's at the time the critic is made, or random ones."""
    coefficient: float | None = None
    """Factor of the value loss where it is added to the policy loss. Required for trunk `policy`, refused for `own`."""
    warm_up: int = 0
    """Iterations at the start in which the critic is trained and the policy is not."""
    clip: float | None = 0.2
    """How far a value may move from the one that the returns were computed with. None: no clip."""
    epochs: int = 1
    mini_batches: int = 1
    """Optimizer steps per epoch. Above 1 the sequences are shuffled and dealt out as evenly as possible."""
    maximum_gradient_norm: float = 1.0
    betas: tuple[float, float] = (0.9, 0.999)
    weight_decay: float = 0.0
    seed: int = 0
    """Seed of random weights and of the shuffle into mini-batches."""

    def __post_init__(self) -> None:
        for name, options in (("trunk", get_args(Trunk)), ("initial", get_args(Initial))):
            if getattr(self, name) not in options:
                raise ConfigurationError(
                    f"a critic's {name} must be one of {', '.join(options)}; found {getattr(self, name)!r}"
                )
        if (self.trunk == "policy") != (self.coefficient is not None):
            raise ConfigurationError(
                "a critic's coefficient weighs its loss against the policy's on the trunk that they share: it must be "
                f"set for trunk: policy and for no other; found trunk {self.trunk!r} and coefficient {self.coefficient}"
            )
        if self.trunk == "policy" and self.initial == "random":
            raise ConfigurationError(
                "a critic on the policy's trunk must begin with the policy's weights; found initial 'random': set "
                "trunk to 'own', or initial to 'policy'"
            )
        for name, lowest in (("micro_batch_tokens", 1), ("epochs", 1), ("mini_batches", 1), ("warm_up", 0)):
            if getattr(self, name) < lowest:
                raise ConfigurationError(f"a critic's {name} must be at least {lowest}; found {getattr(self, name)}")
        for name in ("learning_rate", "clip", "coefficient", "maximum_gradient_norm"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ConfigurationError(f"a critic's {name} must be above 0; found {value}")


@dataclass(frozen=True)
class ValueBatch:
    """Training data of a critic: one entry per sequence, with one number per reply token.

    `values` are the ones that the returns were computed with. A reply token whose return is None has no target and is
    left out of the loss; `turnwise.credit.value_targets` has a target for every reply token. Raises ValueError when the
    entries do not match, when there is no target, and for a number that is not finite.
    """

    sequences: tuple[TokenSequence, ...]
    values: tuple[tuple[float, ...], ...]
    returns: tuple[tuple[float | None, ...], ...]

    def __post_init__(self) -> None:
        lengths = [sum(sequence.mask) for sequence in self.sequences]
        for name in ("values", "returns"):
            found = [len(row) for row in getattr(self, name)]
            if found != lengths:
                raise ValueError(f"{name} must have one number per reply token, {lengths}; found {found}")
        if not self.targets:
            raise ValueError("a value batch must have a return to learn from; found none")
        for name in ("values", "returns"):
            if not all(number is None or math.isfinite(number) for row in getattr(self, name) for number in row):
                raise ValueError(f"{name} must be finite numbers; found another: the critic or the credit diverged")

    @property
    def targets(self) -> int:
        """The number of returns that are not None."""
        return sum(target is not None for row in self.returns for target in row)

    def pairs(self) -> tuple[list[float], list[float]]:
        """The values and the returns of all targets, as two lists of the same length."""
        both = [
            (value, target)
            for of_values, of_returns in zip(self.values, self.returns, strict=True)
            for value, target in zip(of_values, of_returns, strict=True)
            if target is not None
        ]
        return [value for value, _ in both], [target for _, target in both]

    def per_token(self) -> tuple[list[list[float]], list[list[float]]]:
        """Values and returns with one entry per token of each sequence: 0 at observation tokens.

        Returns are NaN at reply tokens that have no target.
        """
        returns = [[math.nan if target is None else target for target in row] for row in self.returns]
        return self._spread(self.values), self._spread(returns)

    def _spread(self, rows: Sequence[Sequence[float]]) -> list[list[float]]:
        spread = []
        for sequence, row in zip(self.sequences, rows, strict=True):
            following = iter(row)
            spread.append([next(following) if mask else 0.0 for mask in sequence.mask])
        return spread

    def parts(self, settings: CriticSettings) -> Iterator[ValueBatch]:
        """The mini-batches of all epochs, one per optimizer step; `settings.seed` decides their order.

        Sequences without a target are left out.
        """
        taught = [index for index, row in enumerate(self.returns) if any(target is not None for target in row)]
        for epoch in range(settings.epochs):
            order = np.array(taught)
            if settings.mini_batches > 1:
                order = generator(settings.seed, "critic-mini-batches", epoch).permutation(taught)
            for part in np.array_split(order, min(settings.mini_batches, len(taught))):
                yield ValueBatch(
                    tuple(self.sequences[index] for index in part),
                    tuple(self.values[index] for index in part),
                    tuple(self.returns[index] for index in part),
                )
