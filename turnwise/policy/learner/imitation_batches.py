"""What AgentEvol imitates: the selected trajectories of a rollout, and demonstrations. See
`turnwise.credit.rejection_sampling`.
"""

from __future__ import annotations

from collections.abc import Sequence

from numpy.random import Generator

from turnwise.config.optimization import Evolution
from turnwise.credit import Advantages
from turnwise.data.arrays import SequenceBatch, joined


def selected_trajectories(credited: Advantages) -> Sequence[int]:
    """The indices in the rollout of the trajectories with any advantage other than 0."""
    rows = zip(credited.trajectories.tolist(), credited.turns, strict=True)
    return [index for index, of_turns in rows if of_turns.any()]


def imitation_batch(
    own: SequenceBatch, demonstrations: SequenceBatch | None, evolution: Evolution, generator: Generator
) -> SequenceBatch:
    """Draw the sequences of a supervised step with replacement: the demonstrations' share, rounded, else own ones."""
    shown = round(evolution.batch * evolution.demonstration_share)
    parts = ((own, evolution.batch - shown), (demonstrations, shown))
    return joined(
        part.select(generator.integers(len(part), size=size)) for part, size in parts if part is not None and size
    )
