"""Variants compared at an equal budget: the same iterations, sampled tokens or seconds."""

from __future__ import annotations

from dataclasses import dataclass

from turnwise.statistics import Interval


@dataclass(frozen=True)
class AtEqualBudget:
    """The results of all variants on the validation task set at an equal budget."""

    budget: str
    """The unit of the budget: `iterations`, `tokens`, `seconds`."""
    spent: float
    """The largest budget that every run has spent, in that unit."""
    shown: dict[str, Interval]
    """By variant, the result of the last evaluation within the budget."""

    @property
    def heading(self) -> str:
        """The budget with its unit, as the heading of a table, such as `1,000 tokens`."""
        amount = f"{self.spent:,.0f}"
        return f"{amount} {self.budget.removesuffix('s') if amount == '1' else self.budget}"
