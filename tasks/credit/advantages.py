"""The artifact `credit`: the advantages of a rollout."""

from __future__ import annotations

from turnwise.credit import Advantages, TrajectoryAdvantages, credit_files
from turnwise.store import Reference, default_store


def read_advantages(reference: Reference) -> Advantages:
    """The advantages of a rollout's trajectories, as arrays."""
    return credit_files.read_advantages(default_store().folder(reference))


def read_credit(reference: Reference) -> dict[int, TrajectoryAdvantages]:
    """The advantages of each trajectory that has any, by its index in the rollout: for whoever shows them."""
    return read_advantages(reference).by_trajectory()
