"""What an advantage estimator is given. Observation tokens are not among it, so they cannot be taken for steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from turnwise.errors import CreditError


@dataclass(frozen=True)
class CreditBatch:
    """One entry per trajectory.

    `group`: which trajectories share a task. `turn_rewards`: the weighted sum of turn-level rewards, one number per
    turn (so a turn with reward 0 is still a turn). `outcome`: the weighted sum of outcome-level rewards. Raises
    CreditError when the entries do not match, or a trajectory has no turn.
    """

    group: Sequence[int]
    turn_rewards: Sequence[Sequence[float]]
    outcome: Sequence[float]

    def __post_init__(self) -> None:
        counts = {"group": len(self.group), "turn_rewards": len(self.turn_rewards), "outcome": len(self.outcome)}
        if len(set(counts.values())) != 1:
            raise CreditError(f"a batch has one entry per trajectory in every field; found {counts}")
        for index, rewards in enumerate(self.turn_rewards):
            if not len(rewards):
                raise CreditError(f"a trajectory has at least one turn; trajectory {index} has none: leave it out")

    def __len__(self) -> int:
        return len(self.group)

    @property
    def members(self) -> dict[int, list[int]]:
        """The indices of each group's trajectories, in order."""
        members: dict[int, list[int]] = {}
        for index, group in enumerate(self.group):
            members.setdefault(group, []).append(index)
        return members

    @property
    def turns(self) -> list[int]:
        """The number of turns of each trajectory."""
        return [len(rewards) for rewards in self.turn_rewards]
