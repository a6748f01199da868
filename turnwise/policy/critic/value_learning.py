"""The training data of a critic: its batch, and the mini-batches."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from turnwise.config.schema import CriticSection
from turnwise.data.trajectory import TokenSequence
from turnwise.seeding import generator


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

    def parts(self, settings: CriticSection, seed: int) -> Iterator[ValueBatch]:
        """The mini-batches of all epochs, one per optimizer step; `seed` decides their order.

        Sequences without a target are left out.
        """
        taught = [index for index, row in enumerate(self.returns) if any(target is not None for target in row)]
        for epoch in range(settings.epochs):
            order = np.array(taught)
            if settings.mini_batches > 1:
                order = generator(seed, "critic-mini-batches", epoch).permutation(taught)
            for part in np.array_split(order, min(settings.mini_batches, len(taught))):
                yield ValueBatch(
                    tuple(self.sequences[index] for index in part),
                    tuple(self.values[index] for index in part),
                    tuple(self.returns[index] for index in part),
                )
