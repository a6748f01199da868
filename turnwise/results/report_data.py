"""Report data: everything that the report of an ablation shows, as plain data (`ReportData`).

The terminal's table, the page and the figures are functions of `ReportData` and of nothing else, so a report can be
rendered again from its `report.json`, byte for byte.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from pydantic import TypeAdapter

from turnwise.config.schema import RewardSection, Section
from turnwise.data.arrays import TrajectoryAdvantages
from turnwise.data.trajectory import Trajectory
from turnwise.results.outcomes import Outcomes, VariantWork
from turnwise.statistics import Interval, Judgement
from turnwise.statistics.curves import AtEqualBudget
from turnwise.statistics.until_decided import SeedRace
from turnwise.world import Reward

BEFORE_RUNS = ("set-up", "warm start")
EVERYTHING_ELSE = "everything else"
STAGES = (*BEFORE_RUNS, "sampling", "worlds", "update", "evaluation", EVERYTHING_ELSE)
"""The stages of the time account, unless a report has its own."""

RowKind = Literal["variant", "went on", "warm start", "baseline"]
ROW_GROUPS: tuple[tuple[RowKind, ...], ...] = (("variant", "went on"), ("warm start",), ("baseline",))
"""The kinds of rows that stand together: beneath a variant, its runs that went on where some were ended early."""
SHARE = "share"
"""The unit of values between 0 and 1; axes with it show the whole range."""


@dataclass(frozen=True)
class ReportColumn:
    """A column of the report's table: one metric by which rows are compared."""

    key: str
    heading: str
    unit: str = ""
    """`share` for values between 0 and 1, else the unit printed after the heading, or empty."""
    better: Literal["up", "down"] | None = None
    """Which direction is better; None if neither is."""
    digits: int = 2
    """Digits after the point."""
    description: str = ""
    """What the metric measures, in one sentence."""


@dataclass(frozen=True)
class Row:
    """A row of the report's table: a variant, those of its runs that went on, a baseline policy or the warm start.

    A variant's row is over all its runs, also those that were ended early. A row of the kind `went on` only ever stands
    beneath it, and nothing is concluded from it. A missing or None cell is a value that is not defined.
    """

    name: str
    kind: RowKind
    cells: dict[str, Interval | None]
    note: str = ""


class Measure(Section):
    """A metric of an iteration's artifact that the report plots over iterations."""

    topic: str
    """The heading of the figures that it stands among."""
    artifact: str
    metric: str
    heading: str
    unit: str = ""


@dataclass(frozen=True)
class Curve:
    """One metric of one run over the iterations."""

    metric: str
    heading: str
    variant: str
    seed: int
    points: list[tuple[int, float]]
    """(iteration, value) with ascending iterations and finite values; undefined values are left out."""
    unit: str = ""
    """As in `ReportColumn.unit`."""
    topic: str = ""
    """The subheading under which curves of the same topic are shown together."""

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
    """Its policy and iteration, e.g. `grpo-or, seed 1, after 20 iterations`."""
    trajectory: Trajectory
    advantages: list[float] | None
    """One per turn; None if the trajectory was not trained on."""
    rewards: dict[str, Reward]
    """Level and weight of the rewards that count in this run. Other rewards are shown without a weight."""
    token_advantages: list[list[float]] | None = None
    """One per reply token of each turn, for token-level estimators; None: each token has the turn's advantage."""
    spelling: list[list[str]] | None = None
    """The text of each reply token of each turn; None if unknown."""

    def __post_init__(self) -> None:
        if self.advantages is not None and len(self.advantages) != len(self.trajectory.turns):
            actual = f"{len(self.advantages)} advantages for {len(self.trajectory.turns)} turns"
            raise ValueError(f"sample {self.label!r} must have one advantage per turn; found {actual}")
        lengths = [len(turn.reply_tokens) for turn in self.trajectory.turns]
        for name, rows in (("advantage", self.token_advantages), ("spelling", self.spelling)):
            if rows is not None and [len(row) for row in rows] != lengths:
                actual = f"{[len(row) for row in rows]} for replies of {lengths}"
                raise ValueError(
                    f"sample {self.label!r} must have one {name} per reply token of each turn; found {actual}"
                )

    def with_credit(self, credit: TrajectoryAdvantages | None, rewards: Mapping[str, RewardSection]) -> Sample:
        """The sample with its advantages by a rule, None where that leaves it out, and the rewards that count in it."""
        lengths = [len(turn.reply_tokens) for turn in self.trajectory.turns]
        return dataclasses.replace(
            self,
            advantages=None if credit is None else credit.turns,
            token_advantages=None if credit is None else credit.by_turn(lengths),
            rewards={name: Reward("", section.level, section.weight) for name, section in rewards.items()},
        )

    def weighted(self, values: Mapping[str, float], level: Literal["turn", "outcome"]) -> float:
        """The weighted sum of one turn's raw rewards `values` at one level: sum of value times weight."""
        return sum(
            reward.weight * values[name]
            for name, reward in self.rewards.items()
            if reward.level == level and name in values
        )


@dataclass(frozen=True)
class Endings:
    """How the training episodes of one variant ended, batch by batch: shares that sum to 1, means over its runs."""

    variant: str
    shares: dict[str, list[tuple[int, float]]]
    """For each ending its points (iteration, share); an ending that never occurred is left out."""


@dataclass(frozen=True)
class AlarmRaised:
    """An alarm that was raised in one iteration of one run."""

    variant: str
    seed: int
    iteration: int
    words: str
    """The observed value and its bound, as text."""
    response: str
    """The run's response: `log`, `stop` or `return`."""


@dataclass(frozen=True)
class CostCurve:
    """The primary metric of one run on the validation task set, sampled, against what had been spent on one axis."""

    axis: str
    variant: str
    seed: int
    points: list[tuple[float, float]]
    """(spent, value), ascending."""


@dataclass(frozen=True)
class AtWrittenBudget:
    """The verdicts at the budget that was written down before the runs: `ablation.budget`."""

    axis: str
    amount: float
    heading: str
    """Both in words, such as `2,000,000 sampled tokens`."""
    judgement: Judgement | None
    """On the validation task set; None where it cannot be said."""
    because: str = ""
    """Why there is none."""


@dataclass(frozen=True)
class Costs:
    """How runs compare at an equal cost: see `turnwise.results.costs`."""

    metric: str
    """The heading of the primary metric."""
    unit: str
    """As in `ReportColumn.unit`."""
    curves: list[CostCurve]
    at_equal: list[AtEqualBudget]
    """By axis that was measured, at the largest budget that every run has spent."""
    at_budget: AtWrittenBudget | None = None
    """None where no budget was written down."""


@dataclass(frozen=True)
class ReportData:
    """All data of one report."""

    title: str
    description: str
    columns: list[ReportColumn]
    rows: list[Row]
    curves: list[Curve] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    """The time account by stage: keys are among `stages`."""
    samples: list[Sample] = field(default_factory=list)
    lineage: list[tuple[str, str]] = field(default_factory=list)
    """(name, value): commit, digests of parameters, task sets and policies, platform, number of worker processes."""
    notes: list[str] = field(default_factory=list)
    judgement: Judgement | None = None
    """Statistical comparison of the variants with baselines and each other, by the world's primary metric over sampled
    episodes."""
    greedy: Judgement | None = None
    """The same over greedy episodes, without learning curves."""
    endings: list[Endings] = field(default_factory=list)
    """One for each variant."""
    alarms: list[AlarmRaised] | None = None
    """The alarms that were raised; None if monitoring was off."""
    work: list[VariantWork] = field(default_factory=list)
    """One for each variant."""
    outcomes: Outcomes | None = None
    """The runs that were ended early or left out; None where every run made all its iterations."""
    race: SeedRace | None = None
    """How seeds were added until comparisons were decided; None where they were listed."""
    costs: Costs | None = None
    """The runs at an equal cost, seconds among it, which are no results: None in the artifact."""
    stages: list[str] = field(default_factory=lambda: list(STAGES))
    """The stages of the time account, in the order in which they are shown."""

    def __post_init__(self) -> None:
        keys = [column.key for column in self.columns]
        if len(keys) != len(set(keys)):
            raise ValueError(f"column keys must differ; found {keys}")
        for row in self.rows:
            if unknown := sorted(set(row.cells) - set(keys)):
                raise ValueError(f"row {row.name!r} must have cells of the columns {keys} only; found also {unknown}")
        if unknown := sorted(set(self.seconds) - set(self.stages)):
            raise ValueError(f"the time account must be divided into {self.stages}; found also {unknown}")

    def account(self) -> list[tuple[str, float]]:
        """The time account as (stage, seconds), in the order of `stages`, without stages that were not measured."""
        return [(stage, self.seconds[stage]) for stage in self.stages if stage in self.seconds]

    def rows_of(self, kind: RowKind) -> list[Row]:
        """The rows of one kind, in the order of `rows`."""
        return [row for row in self.rows if row.kind == kind]

    def row_groups(self) -> list[list[Row]]:
        """The rows that stand together, as far as there are any: variants, the warm start, baseline policies."""
        groups = ([row for row in self.rows if row.kind in kinds] for kinds in ROW_GROUPS)
        return [rows for rows in groups if rows]

    def mark(self, row: Row) -> str:
        """What stands beside a variant's name where some of its runs were ended or left out; else empty."""
        return "" if self.outcomes is None or row.kind != "variant" else self.outcomes.mark(row.name)

    def to_json(self) -> str:
        """The report data as JSON text. Raises ValueError for numbers that JSON cannot hold (NaN, infinity).

        Where every run made all its iterations, nothing is said of outcomes; where seeds were listed, of no race; in
        the artifact, of no costs.
        """
        values = dataclasses.asdict(self)
        for name in ("outcomes", "race", "costs"):
            if values[name] is None:
                del values[name]
        return json.dumps(values, indent=1, ensure_ascii=False, allow_nan=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> ReportData:
        """The report data that `to_json` wrote. Raises pydantic's ValidationError for other text."""
        return TypeAdapter(cls).validate_json(text)
