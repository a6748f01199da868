"""How variants stand when all have spent as much: the same iterations, sampled tokens or seconds."""

from __future__ import annotations

from dataclasses import dataclass

from turnwise.statistics import Interval


@dataclass(frozen=True)
class AtEqualBudget:
    """How the variants stand on the validation panel when all have spent as much."""

    budget: str
    """What is spent: `iterations`, `tokens`, `seconds`."""
    spent: float
    """The most that every run has spent."""
    shown: dict[str, Interval]
    """By variant: what the last evaluation showed that this pays for."""

    @property
    def heading(self) -> str:
        """How much of what, as a table's heading says it."""
        amount = f"{self.spent:,.0f}"
        return f"{amount} {self.budget.removesuffix('s') if amount == '1' else self.budget}"
