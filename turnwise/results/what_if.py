"""Several rules' credit for one rollout, compared: the data of `turnwise what-if`.

The first rule is the one that the others are compared with: of a recorded run the one that it learned by.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from turnwise.data.arrays import Numbers

AdvantagesOfTurns = Mapping[int, Sequence[float]]
"""By trajectory of the rollout, the advantage of each of its turns; a trajectory that is left out has no entry."""


@dataclass(frozen=True)
class TurnFigures:
    """A rule's advantages of the n-th turn of all trajectories."""

    turn: int
    """Counted from 1."""
    count: int
    mean: float
    deviation: float
    """The population standard deviation."""
    correlation: float | None = None
    """With the first rule's advantages of the same turns; None for that rule itself, and where either has no spread."""


@dataclass(frozen=True)
class RuleFigures:
    """A rule's advantages of one rollout, in numbers."""

    name: str
    trajectories: int
    """That have advantages."""
    turns: int
    size: float
    """The mean of |advantage| over turns."""
    zero_share: float
    """The share of turns with advantage 0."""
    by_turn: list[TurnFigures]
    correlation: float | None = None
    """Over the turns that both have, with the first rule; None as in `TurnFigures`."""
    opposite_share: float | None = None
    """The share of these turns whose advantages have opposite signs."""


@dataclass(frozen=True)
class ChangedSetting:
    """A setting that differs between rules."""

    key: str
    values: dict[str, str]
    """By rule, its value as text."""


@dataclass(frozen=True)
class WhatIf:
    """What other settings would make of one rollout."""

    title: str
    rollout: str
    """Which rollout it is, in words."""
    rules: list[RuleFigures]
    settings: list[ChangedSetting] = field(default_factory=list)
    steps: dict[str, dict[str, float] | None] = field(default_factory=dict)
    """By rule, the metrics of its first step (`turnwise.policy.learner.first_step`); None where no token of the batch
    has a gradient. Empty where no gradient was computed."""
    cosines: dict[str, float | None] = field(default_factory=dict)
    """By rule after the first, the cosine of its gradient with that one's; None where one of them is 0."""
    notes: list[str] = field(default_factory=list)
    """What is to be known besides: why there are no gradients, what counts lengths."""
    left_out: dict[str, str] = field(default_factory=dict)
    """By rule that was asked for and cannot be applied: why."""
    lineage: dict[str, str] = field(default_factory=dict)
    """The artifacts that this was read from, by name."""

    def to_json(self) -> str:
        """All of it as JSON text."""
        return json.dumps(dataclasses.asdict(self), indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def compare_rules(advantages: Mapping[str, AdvantagesOfTurns]) -> list[RuleFigures]:
    """The figures of each rule, by name; all after the first are compared with it."""
    first = next(iter(advantages.values()), {})
    return [
        rule_figures(name, rule_advantages, None if place == 0 else first)
        for place, (name, rule_advantages) in enumerate(advantages.items())
    ]


def rule_figures(name: str, advantages: AdvantagesOfTurns, first: AdvantagesOfTurns | None) -> RuleFigures:
    """The figures of one rule, compared with `first` on the trajectories that both have; None: with nothing."""
    flat = _flat(advantages.values())
    shared = [] if first is None else [index for index in advantages if index in first]
    ours, theirs = (_flat(rows[index] for index in shared) for rows in (advantages, first or {}))
    return RuleFigures(
        name=name,
        trajectories=len(advantages),
        turns=len(flat),
        size=float(np.abs(flat).mean()) if len(flat) else 0.0,
        zero_share=float((flat == 0).mean()) if len(flat) else 0.0,
        by_turn=_by_turn(advantages, None if first is None else {index: first[index] for index in shared}),
        correlation=_correlation(ours, theirs),
        opposite_share=float((ours * theirs < 0).mean()) if len(ours) else None,
    )


def _by_turn(advantages: AdvantagesOfTurns, first: AdvantagesOfTurns | None) -> list[TurnFigures]:
    figures = []
    for turn in range(max(map(len, advantages.values()), default=0)):
        values = np.array([row[turn] for row in advantages.values() if len(row) > turn])
        both = [index for index, row in advantages.items() if first and index in first and len(row) > turn]
        ours, theirs = (np.array([rows[index][turn] for index in both]) for rows in (advantages, first or {}))
        figures.append(
            TurnFigures(turn + 1, len(values), float(values.mean()), float(values.std()), _correlation(ours, theirs))
        )
    return figures


def _flat(rows: Iterable[Sequence[float]]) -> Numbers:
    return np.array([value for row in rows for value in row], dtype=np.float64)


def _correlation(one: Numbers, other: Numbers) -> float | None:
    """Pearson's; None where either has no spread."""
    if len(one) < 2 or np.ptp(one) == 0 or np.ptp(other) == 0:
        return None
    return float(np.clip(np.corrcoef(one, other)[0, 1], -1.0, 1.0))
