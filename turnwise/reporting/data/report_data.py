"""The story of an ablation: everything that its report says, as plain data, before anything is drawn.

The terminal's table, the page and the figures are functions of a `Story` and of nothing else, so a report can be drawn
again from its `story.json`, byte for byte.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from pydantic import TypeAdapter

from turnwise.data.trajectory import Trajectory
from turnwise.reporting.data.history import AlarmRaised, Endings, VariantWork
from turnwise.statistics import Interval, Judgement
from turnwise.world import Reward

STAGES = ("set-up", "warm start", "sampling", "worlds", "update", "evaluation", "everything else")
"""What the time account is divided into, in the order in which it is told."""

RowKind = Literal["variant", "warm start", "player"]
ROW_KINDS: tuple[RowKind, ...] = ("variant", "warm start", "player")
SHARE = "share"
"""The unit of what lies between 0 and 1: such axes show the whole range."""


@dataclass(frozen=True)
class ReportColumn:
    """One number by which rows are compared."""

    key: str
    heading: str
    unit: str = ""
    """`share` for what lies between 0 and 1, else the unit that is printed beside the heading, or nothing."""
    better: Literal["up", "down"] | None = None
    """Which way is better; None where neither is."""
    digits: int = 2
    """Digits after the point."""
    description: str = ""
    """What is counted, in one sentence."""


@dataclass(frozen=True)
class Row:
    """One variant, one player of reference, or the warm start. A missing or None cell is one that is not defined."""

    name: str
    kind: RowKind
    cells: dict[str, Interval | None]
    note: str = ""


@dataclass(frozen=True)
class Curve:
    """One metric of one run over the iterations."""

    metric: str
    heading: str
    variant: str
    seed: int
    points: list[tuple[int, float]]
    """(iteration, value), iterations ascending, values finite: an undefined value is left out."""
    unit: str = ""
    """As in `ReportColumn.unit`."""
    topic: str = ""
    """What it is shown with: curves of one topic stand together under it."""

    def __post_init__(self) -> None:
        iterations = [iteration for iteration, _ in self.points]
        where = f"curve {self.metric!r} of {self.variant!r}, seed {self.seed}"
        if iterations != sorted(set(iterations)):
            raise ValueError(f"{where}: iterations must ascend, each once; found {iterations}")
        if not all(math.isfinite(value) for _, value in self.points):
            raise ValueError(f"{where}: values must be finite; leave the others out")


@dataclass(frozen=True)
class Sample:
    """A trajectory that is shown turn by turn."""

    label: str
    """Whose it is and when, e.g. `grpo-or, seed 1, after 20 iterations`."""
    trajectory: Trajectory
    advantages: list[float] | None
    """One per turn; None where the trajectory was not trained on."""
    rewards: dict[str, Reward]
    """Level and weight of the rewards that count in this run. The others are shown without weight."""
    token_advantages: list[list[float]] | None = None
    """Of each turn's reply tokens, for an estimator that credits tokens; None: each has its turn's."""
    spelling: list[list[str]] | None = None
    """Of each turn's reply tokens, as text; None where it is not known."""

    def __post_init__(self) -> None:
        if self.advantages is not None and len(self.advantages) != len(self.trajectory.turns):
            found = f"{len(self.advantages)} advantages for {len(self.trajectory.turns)} turns"
            raise ValueError(f"sample {self.label!r} must have one advantage per turn; found {found}")
        lengths = [len(turn.reply_tokens) for turn in self.trajectory.turns]
        for name, rows in (("advantage", self.token_advantages), ("spelling", self.spelling)):
            if rows is not None and [len(row) for row in rows] != lengths:
                found = f"{[len(row) for row in rows]} for replies of {lengths}"
                raise ValueError(
                    f"sample {self.label!r} must have one {name} per reply token of each turn; found {found}"
                )

    def weighted(self, values: Mapping[str, float], level: Literal["turn", "outcome"]) -> float:
        """What one turn's raw rewards `values` come to at one level: the sum of value times weight."""
        return sum(
            reward.weight * values[name]
            for name, reward in self.rewards.items()
            if reward.level == level and name in values
        )


@dataclass(frozen=True)
class Story:
    """All that one report tells."""

    title: str
    description: str
    columns: list[ReportColumn]
    rows: list[Row]
    curves: list[Curve] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    """The time account by stage: keys are among `STAGES`."""
    samples: list[Sample] = field(default_factory=list)
    lineage: list[tuple[str, str]] = field(default_factory=list)
    """(what, which): commit, digests of parameters, panels and policies, platform, processes that shared the work."""
    notes: list[str] = field(default_factory=list)
    judgement: Judgement | None = None
    """How the variants stand beside the baselines and each other, by the world's primary metric."""
    endings: list[Endings] = field(default_factory=list)
    """One for each variant."""
    alarms: list[AlarmRaised] | None = None
    """Those that were raised; None where nobody watched."""
    work: list[VariantWork] = field(default_factory=list)
    """One for each variant."""

    def __post_init__(self) -> None:
        keys = [column.key for column in self.columns]
        if len(keys) != len(set(keys)):
            raise ValueError(f"column keys must differ; found {keys}")
        for row in self.rows:
            if unknown := sorted(set(row.cells) - set(keys)):
                raise ValueError(f"row {row.name!r} must have cells of the columns {keys} only; found also {unknown}")
        if unknown := sorted(set(self.seconds) - set(STAGES)):
            raise ValueError(f"the time account must be divided into {STAGES}; found also {unknown}")

    def account(self) -> list[tuple[str, float]]:
        """The time account as (stage, seconds) in the order of `STAGES`; stages that were not measured are left out."""
        return [(stage, self.seconds[stage]) for stage in STAGES if stage in self.seconds]

    def rows_of(self, kind: RowKind) -> list[Row]:
        """The rows of one kind, in their order."""
        return [row for row in self.rows if row.kind == kind]

    def to_json(self) -> str:
        """The story as JSON text. Raises ValueError for numbers that JSON cannot hold (NaN, infinity)."""
        return json.dumps(dataclasses.asdict(self), indent=1, ensure_ascii=False, allow_nan=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Story:
        """The story that `to_json` wrote, equal to the original. Raises pydantic's ValidationError for other text."""
        return TypeAdapter(cls).validate_json(text)
