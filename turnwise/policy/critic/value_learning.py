"""The training data of a critic: its batch, and the mini-batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from turnwise.config.schema import CriticSection
from turnwise.data.arrays import Advantages, Ragged, Rows, SequenceBatch, Sequences, TrajectoryArrays
from turnwise.errors import NotFiniteError
from turnwise.seeding import generator


@dataclass(frozen=True)
class ValueBatch:
    """Training data of a critic: one row per sequence, with one number per reply token.

    `values` are the ones that the returns were computed with. A reply token without a target is left out of the loss;
    `turnwise.credit.value_targets` has a target for every reply token. Raises ValueError when the rows do not match the
    sequences, when there is no target, and for a number that is not finite.
    """

    sequences: SequenceBatch
    values: Ragged
    returns: Ragged
    """0 where there is no target."""
    has_target: Ragged
    """Which reply tokens have a return."""

    @classmethod
    def of(cls, sequences: Sequences, values: Rows, returns: Ragged | Sequence[Sequence[float | None]]) -> ValueBatch:
        """A batch from these rows; a return that is None is no target."""
        if isinstance(returns, Ragged):
            has_target = Ragged(np.ones(len(returns.values), dtype=bool), returns.offsets)
        else:
            has_target = Ragged.of(([target is not None for target in row] for row in returns), np.bool_)
            returns = Ragged.of([0.0 if target is None else target for target in row] for row in returns)
        return cls(SequenceBatch.of(sequences), Ragged.of(values), returns, has_target)

    def __post_init__(self) -> None:
        counts = self.sequences.reply_counts
        for name in ("values", "returns"):
            lengths = getattr(self, name).lengths
            if not np.array_equal(lengths, counts):
                raise ValueError(
                    f"{name} must have one number per reply token, {counts.tolist()}; found {lengths.tolist()}"
                )
        if not self.targets:
            raise ValueError("a value batch must have a return to learn from; found none")
        for name in ("values", "returns"):
            if not np.isfinite(getattr(self, name).values).all():
                raise NotFiniteError(
                    f"{name} must be finite numbers; found another: the critic or the credit diverged", "TW-not-finite"
                )

    @property
    def targets(self) -> int:
        """The number of reply tokens that have a return."""
        return int(self.has_target.values.sum())

    def pairs(self) -> tuple[list[float], list[float]]:
        """The values and the returns of all targets, as two lists of the same length."""
        has_target = self.has_target.values
        return self.values.values[has_target].tolist(), self.returns.values[has_target].tolist()

    def per_token(self) -> tuple[Ragged, Ragged]:
        """Values and returns with one number per token of each sequence: 0 at observation tokens.

        Returns are NaN at reply tokens that have no target.
        """
        returns = np.where(self.has_target.values, self.returns.values, np.nan)
        return self.sequences.at_replies(self.values.values), self.sequences.at_replies(returns)

    def parts(self, settings: CriticSection, seed: int) -> Iterator[ValueBatch]:
        """The mini-batches of all epochs, one per optimizer step; `seed` decides their order.

        Sequences without a target are left out.
        """
        taught = [index for index, row in enumerate(self.has_target) if row.any()]
        for epoch in range(settings.epochs):
            order = np.array(taught)
            if settings.mini_batches > 1:
                order = generator(seed, "critic-mini-batches", epoch).permutation(taught)
            for part in np.array_split(order, min(settings.mini_batches, len(taught))):
                yield ValueBatch(
                    self.sequences.select(part),
                    self.values.select(part),
                    self.returns.select(part),
                    self.has_target.select(part),
                )


def value_batch(
    rollout: TrajectoryArrays, credited: Advantages, values: Ragged, shown: SequenceBatch | None = None
) -> ValueBatch:
    """The batch of a critic: all replies of the trajectories with credit, also those that the policy is not trained on.

    `values` has those of the critic, one per reply token of each trajectory of the rollout. `shown` has one sequence
    per trajectory with credit, where the critic reads others than the policy.
    """
    assert credited.value_targets is not None, "an estimator with a critic has targets for it"
    sequences = rollout.select(credited.trajectories).segments(every_reply=True)[0] if shown is None else shown
    return ValueBatch.of(
        sequences,
        sequences.reply_rows(values.select(credited.trajectories).values),
        sequences.reply_rows(credited.value_targets.values),
    )
