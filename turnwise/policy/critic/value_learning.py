"""The training data of a critic: its batch, and the mini-batches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from turnwise.config.schema import CriticSection
from turnwise.data.arrays import Advantages, Ragged, Rows, SequenceBatch, Sequences, TrajectoryArrays
from turnwise.errors import NotFiniteError
from turnwise.seeding import generator


@dataclass(frozen=True)
class ValueBatch:
    """Training data of a critic: one row per sequence, with one number per reply token.

    `values` are the ones that the returns were computed with. Raises ValueError when the rows do not match the
    sequences, when there is no reply token, and for a number that is not finite.
    """

    sequences: SequenceBatch
    values: Ragged
    returns: Ragged

    @classmethod
    def of(cls, sequences: Sequences, values: Rows, returns: Rows) -> ValueBatch:
        """A batch from these rows."""
        return cls(SequenceBatch.of(sequences), Ragged.of(values), Ragged.of(returns))

    def __post_init__(self) -> None:
        counts = self.sequences.reply_counts
        for name in ("values", "returns"):
            lengths = getattr(self, name).lengths
            if not np.array_equal(lengths, counts):
                raise ValueError(
                    f"{name} must have one number per reply token, {counts.tolist()}; found {lengths.tolist()}"
                )
        if not len(self.returns.values):
            raise ValueError("a value batch must have a return to learn from; found none")
        for name in ("values", "returns"):
            if not np.isfinite(getattr(self, name).values).all():
                raise NotFiniteError(
                    f"{name} must be finite numbers; found another: the critic or the credit diverged", "TW-not-finite"
                )

    def per_token(self) -> tuple[Ragged, Ragged]:
        """Values and returns with one number per token of each sequence: 0 at observation tokens."""
        return self.sequences.at_replies(self.values.values), self.sequences.at_replies(self.returns.values)

    def parts(self, settings: CriticSection, seed: int) -> Iterator[ValueBatch]:
        """The mini-batches of all epochs, one per optimizer step; `seed` decides their order.

        Sequences without a reply token are left out.
        """
        indices = np.flatnonzero(self.sequences.reply_counts)
        for epoch in range(settings.epochs):
            order = indices
            if settings.mini_batches > 1:
                order = generator(seed, "critic-mini-batches", epoch).permutation(indices)
            for part in np.array_split(order, min(settings.mini_batches, len(indices))):
                yield ValueBatch(self.sequences.select(part), self.values.select(part), self.returns.select(part))


def value_batch(
    rollout: TrajectoryArrays, credited: Advantages, values: Ragged, critic_inputs: SequenceBatch | None = None
) -> ValueBatch:
    """The batch of a critic: all replies of the trajectories with credit, also those that the policy is not trained on.

    `values` has those of the critic, one per reply token of each trajectory of the rollout. `critic_inputs` has one
    sequence per trajectory with credit, where the critic reads others than the policy.
    """
    assert credited.value_targets is not None, "an estimator with a critic has targets for it"
    if critic_inputs is not None:
        sequences = critic_inputs
    else:
        sequences, _ = rollout.select(credited.trajectories).segments(every_reply=True)
    return ValueBatch.of(
        sequences,
        sequences.reply_rows(values.select(credited.trajectories).values),
        sequences.reply_rows(credited.value_targets.values),
    )
